"""What the node's monitor reads can be looked at from outside, without another helper."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.monitor.waiting import eventually

from treadle.cli.top import NodeOrOwn, wait_for_devices
from treadle.client.readings import NodeReadings, NoReadingsError, Readings
from treadle.monitor import MonitorSnapshot

from .conftest import StartNode
from .nodes import RunningNode

ROOT = Path(__file__).parents[2]
FAKES = {
    "TREADLE_DEVICES": "tests.monitor.fakes:two",
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
}


@pytest.fixture
def node(start_node: StartNode, tmp_path: Path) -> RunningNode:
    return start_node("", environment=FAKES | {"TREADLE_TEST_FAKES": str(tmp_path)})


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process looks for a node as one that was started beside it does."""
    for name in ("TREADLE_DEVICES", "TREADLE_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", FAKES["PYTHONPATH"])
    return monkeypatch


def has_read(readings: Readings) -> MonitorSnapshot:
    def look() -> MonitorSnapshot | None:
        snapshot = readings.snapshot()
        known = [device.value("power") is not None for device in snapshot.devices]
        return snapshot if known and all(known) else None

    return eventually(look, "a value of power from every device")


def test_a_node_s_readings_are_looked_at_where_they_are(node: RunningNode) -> None:
    readings = NodeReadings(node.socket)
    before = node.home.processes()
    snapshot = has_read(readings)
    assert [d.value("power") for d in snapshot.devices] == [100.0, 150.0]
    assert snapshot.reasons == ("nvidia: there is no driver",)
    assert snapshot.helper_pid in before
    eventually(lambda: len(readings.history("FAKE-0", "energy")) >= 3, "three readings")
    assert len(readings.history("FAKE-0", "no such metric")) == 0
    assert node.home.processes() == before


def test_a_helper_that_is_started_again_is_followed(node: RunningNode) -> None:
    readings = NodeReadings(node.socket)
    pid = has_read(readings).helper_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: readings.snapshot().helper_pid not in (pid, None), "another helper")
    snapshot = has_read(readings)
    assert snapshot.helper_pid != pid
    assert snapshot.restarts == 1
    _, events = readings.events()
    assert "sampler-ended" in [event.kind for event in events]


def test_events_are_told_once(node: RunningNode, tmp_path: Path) -> None:
    readings = NodeReadings(node.socket)
    has_read(readings)
    (tmp_path / "throttle").touch()

    def told() -> list[str]:
        readings.snapshot()
        return [event.device for event in readings.events()[1] if event.kind == "throttle-start"]

    eventually(lambda: len(told()) >= 2, "an event of each device")
    count, _ = readings.events()
    (tmp_path / "throttle").unlink()
    eventually(lambda: readings.snapshot() and readings.events()[0] >= count + 2, "two more")
    assert sorted(told()) == ["FAKE-0", "FAKE-1"]
    assert {event.kind for event in readings.events(count)[1]} == {"throttle-end"}


def test_a_node_that_hangs_gives_no_old_figure_for_a_new_one(node: RunningNode) -> None:
    readings = NodeReadings(node.socket)
    pid = has_read(readings).helper_pid
    assert pid is not None
    node.signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)
    try:
        trouble = eventually(lambda: readings.snapshot().trouble, "trouble")
        assert trouble.startswith("the node's sampler has not moved for ")
        assert readings.snapshot().devices[0].value("power") is None
    finally:
        os.kill(pid, signal.SIGCONT)
        node.signal(signal.SIGCONT)
    has_read(readings)


def test_a_frame_of_top_starts_no_helper(node: RunningNode) -> None:
    has_read(NodeReadings(node.socket))
    # What top itself would find is not there: all that it shows comes from the node.
    environment = node.home.environment | {"TREADLE_DEVICES": "auto"}
    node.home.environment = environment | {"TREADLE_SIMULATED_GPUS": "no number"}
    result = node.home.treadle("top", "--once")
    assert (result.returncode, result.stderr) == (0, "")
    assert "150 W" in result.stdout


def test_where_nothing_can_be_had_from_a_node_top_looks_itself(
    start_node: StartNode, beside: pytest.MonkeyPatch
) -> None:
    node = start_node("")
    with pytest.raises(NoReadingsError, match=r'node\.devices is "none"'):
        NodeReadings(node.socket)
    beside.setenv("TREADLE_SOCKET", str(node.socket))
    beside.setenv("TREADLE_DEVICES", "tests.monitor.fakes:two")
    with NodeOrOwn() as readings:
        assert readings.are_own
        wait_for_devices(readings)
        assert len(has_read(readings).devices) == 2


def test_other_devices_than_the_node_s_are_looked_for_here(
    node: RunningNode, beside: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoReadingsError, match="the node reads other devices"):
        NodeReadings(node.socket, "a_module:find")
    NodeReadings(node.socket, FAKES["TREADLE_DEVICES"])
    beside.setenv("TREADLE_SOCKET", str(node.socket))
    assert not NodeOrOwn().are_own
    assert NodeOrOwn("a_module:find").are_own


def test_when_the_node_ends_top_goes_on_by_itself(
    node: RunningNode, beside: pytest.MonkeyPatch
) -> None:
    beside.setenv("TREADLE_SOCKET", str(node.socket))
    beside.setenv("TREADLE_DEVICES", FAKES["TREADLE_DEVICES"])
    with NodeOrOwn() as readings:
        has_read(readings)
        assert not readings.are_own
        node.signal(signal.SIGTERM)
        node.wait_ended()
        eventually(lambda: readings.snapshot() and readings.are_own, "a monitor of its own")
        assert len(has_read(readings).devices) == 2


def test_without_a_node_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NoReadingsError, match="no node answers"):
        NodeReadings(tmp_path / "node.sock")


def test_where_readings_lie_is_told_to_the_owner_alone(node: RunningNode) -> None:
    assert node.http.get("/treadle/v1/monitor").status_code == 403
    answer = node.local.get("/treadle/v1/monitor?after=nonsense").json()
    assert answer["pid"] == node.process.pid
