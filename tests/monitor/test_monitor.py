"""The monitor tells what devices read, whatever becomes of the process that reads them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.monitor.conftest import StartMonitor, has_read
from tests.monitor.pages import WrittenPage
from tests.monitor.waiting import eventually

from treadle.devices.device import DeviceEvent, DeviceKind
from treadle.monitor import AUTO, Monitor, finder
from treadle.monitor.exporter import DeviceMetrics


def event(monitor: Monitor, kind: str) -> DeviceEvent:
    """The first event of a kind."""

    def look() -> DeviceEvent | None:
        _, events = monitor.events()
        return next((e for e in events if e.kind == kind), None)

    return eventually(look, f"an event {kind}")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_every_device_is_read(start_monitor: StartMonitor) -> None:
    snapshot = has_read(start_monitor())
    assert [d.info.uuid for d in snapshot.devices] == ["FAKE-0", "FAKE-1"]
    assert [d.value("power") for d in snapshot.devices] == [100.0, 150.0]
    assert snapshot.reasons == ("nvidia: there is no driver",)
    assert snapshot.trouble == ""
    assert snapshot.devices[0].readings["fan_speed"].reason == "a fake has none"
    assert snapshot.devices[0].sources["power"] == "fake.power"


def test_what_was_read_before_is_kept(start_monitor: StartMonitor) -> None:
    monitor = start_monitor()
    eventually(lambda: len(monitor.history("FAKE-0", "energy")) >= 3, "three readings")
    values = monitor.history("FAKE-0", "energy")["value"].tolist()
    assert values == sorted(values)
    assert len(monitor.history("FAKE-0", "no such metric")) == 0


def test_before_anything_is_read_it_says_so(orders: Path) -> None:
    monitor = Monitor("tests.monitor.fakes:two")
    assert monitor.snapshot().trouble == "the devices are being looked for"
    assert monitor.snapshot().devices == ()
    monitor.close()


def test_a_read_that_hangs_is_named_and_the_helper_started_again(
    start_monitor: StartMonitor, orders: Path
) -> None:
    monitor = start_monitor(hang_seconds=0.5, most_hangs=1000, first_backoff_seconds=0.2)
    pid = has_read(monitor).helper_pid
    (orders / "hang-fake.temperature").touch()
    trouble = eventually(lambda: monitor.snapshot().trouble, "trouble")
    assert trouble.startswith("fake.temperature has not answered for ")
    reading = monitor.snapshot().devices[0].readings["power"]
    assert reading.value is None
    assert reading.reason.startswith("fake.temperature has not answered for ")
    (orders / "hang-fake.temperature").unlink()
    eventually(lambda: not monitor.snapshot().trouble, "an end of the trouble")
    snapshot = has_read(monitor)
    assert snapshot.helper_pid != pid
    assert snapshot.restarts >= 1
    assert event(monitor, "source-failed").device in {"FAKE-0", "FAKE-1"}


def test_a_source_that_hangs_again_is_left_out_and_the_others_go_on(
    start_monitor: StartMonitor, orders: Path
) -> None:
    monitor = start_monitor(hang_seconds=0.5, most_hangs=1)
    has_read(monitor)
    (orders / "hang-fake.temperature").touch()
    eventually(lambda: len(monitor.snapshot().left_out) == 2, "both are left out")
    snapshot = has_read(monitor, "power")
    reading = snapshot.devices[0].readings["temperature"]
    assert (reading.value, reading.reason) == (
        None,
        "fake.temperature hung again and again: left out",
    )


def test_a_device_whose_events_hang_again_is_asked_for_its_figures_only(
    start_monitor: StartMonitor, orders: Path
) -> None:
    monitor = start_monitor(hang_seconds=0.5, most_hangs=1)
    has_read(monitor)
    (orders / "hang-events-1").touch()
    (left_out,) = eventually(lambda: monitor.snapshot().left_out, "its events are left out")
    assert left_out.device == "FAKE-1"
    assert event(monitor, "source-failed").text.startswith("list of events and processes does")
    eventually(lambda: not monitor.snapshot().trouble, "an end of the trouble")
    has_read(monitor)
    (orders / "throttle").touch()
    assert event(monitor, "throttle-start").device == "FAKE-0"
    assert monitor.snapshot().restarts == 1


def test_a_helper_that_dies_is_started_again(start_monitor: StartMonitor) -> None:
    monitor = start_monitor(first_backoff_seconds=0.3)
    pid = has_read(monitor).helper_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    trouble = eventually(lambda: monitor.snapshot().trouble, "trouble")
    assert trouble == "the sampler was killed by SIGKILL"
    assert monitor.snapshot().devices[0].value("power") is None
    eventually(lambda: not monitor.snapshot().trouble, "an end of the trouble")
    assert has_read(monitor).restarts == 1


def test_a_helper_that_stands_still_is_started_again(start_monitor: StartMonitor) -> None:
    monitor = start_monitor(hang_seconds=0.5)
    pid = has_read(monitor).helper_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: monitor.snapshot().restarts, "another helper")
    assert has_read(monitor).helper_pid != pid
    assert not is_alive(pid)


def test_devices_that_cannot_be_found_are_a_reason(start_monitor: StartMonitor) -> None:
    monitor = start_monitor("tests.monitor.fakes:none")
    eventually(lambda: "nothing is here" in monitor.snapshot().trouble, "the reason")
    assert monitor.snapshot().devices == ()


def test_a_device_that_is_gone_is_left_out_and_the_others_go_on(
    start_monitor: StartMonitor, orders: Path
) -> None:
    monitor = start_monitor()
    has_read(monitor)
    (orders / "gone-0").touch()
    gone = event(monitor, "gone")
    assert (gone.device, gone.text) == ("FAKE-0", "GPU is lost")
    first, second = monitor.snapshot().devices
    assert first.readings["power"].reason == "the device is gone: GPU is lost"
    assert second.value("power") == 150.0
    assert monitor.snapshot().restarts == 0


def test_a_source_that_fails_and_comes_back_is_told_of(
    start_monitor: StartMonitor, orders: Path
) -> None:
    monitor = start_monitor()
    has_read(monitor)
    (orders / "fail-fake.power").touch()
    failed = event(monitor, "source-failed")
    assert failed.text == "fake.power: it was told to fail"
    device = next(d for d in monitor.snapshot().devices if d.info.uuid == failed.device)
    assert device.readings["power"].reason == "it was told to fail"
    (orders / "fail-fake.power").unlink()
    assert event(monitor, "source-back").text == "fake.power answers again"


def test_events_of_devices_arrive(start_monitor: StartMonitor, orders: Path) -> None:
    monitor = start_monitor()
    (orders / "throttle").touch()
    assert event(monitor, "throttle-start").text == "told to"
    count, events = monitor.events()
    assert monitor.events(count) == (count, [])
    assert list(events) == list(monitor.events(0)[1])


def test_a_process_that_goes_past_the_turnstile_is_told_of(
    start_monitor: StartMonitor, orders: Path, tmp_path: Path
) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)
    (orders / "processes-0").write_text(f"{os.getpid()} 4242")
    monitor = start_monitor()
    ungated = event(monitor, "ungated")
    assert ungated.device == "FAKE-0"
    assert "process 4242 (stranger)" in ungated.text
    assert [e.kind for e in monitor.events()[1]].count("ungated") == 1
    page.close()


def test_the_pages_are_read_beside_the_devices(start_monitor: StartMonitor, tmp_path: Path) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 1)
    monitor = start_monitor()
    eventually(lambda: monitor.snapshot().devices, "devices")
    eventually(lambda: monitor.snapshot().devices[0].value("gate_members") == 1, "the member")
    page.page.record[0].launches = 5
    eventually(lambda: monitor.snapshot().devices[0].value("gate_launches") == 5, "launches")
    page.close()


def test_the_helper_ends_with_the_monitor(start_monitor: StartMonitor) -> None:
    monitor = start_monitor()
    pid = has_read(monitor).helper_pid
    assert pid is not None
    monitor.close()
    assert not is_alive(pid)
    assert monitor.snapshot().trouble == "the monitor was closed"
    assert monitor.snapshot().devices[0].value("power") is None


def test_the_helper_ends_when_its_parent_is_killed(orders: Path) -> None:
    program = """
from tests.monitor.conftest import has_read
from treadle.monitor import AUTO, Monitor, finder
from treadle.monitor.exporter import DeviceMetrics
monitor = Monitor("tests.monitor.fakes:two")
monitor.start()
print(has_read(monitor).helper_pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    eventually(lambda: not is_alive(pid), "the helper has ended")


def test_metrics_can_be_had_while_it_ends_and_after(start_monitor: StartMonitor) -> None:
    monitor = start_monitor()
    has_read(monitor)
    registry = CollectorRegistry()
    registry.register(DeviceMetrics(monitor.snapshot))
    closing = threading.Thread(target=monitor.close)
    closing.start()
    while closing.is_alive():
        assert b"treadle_monitor_up" in generate_latest(registry)
    closing.join()
    assert b"treadle_monitor_up 0.0" in generate_latest(registry)
    assert b"DCGM" not in generate_latest(registry)


def test_simulated_gpus_are_found_and_read(
    start_monitor: StartMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_SIMULATED_GPUS", "2")
    monitor = start_monitor(finder(AUTO))

    def activity() -> list[float | None]:
        devices = monitor.snapshot().devices
        return [d.value("sm_activity") for d in devices if d.info.kind is DeviceKind.SIMULATED]

    eventually(lambda: len(activity()) == 2 and None not in activity(), "both are read")
