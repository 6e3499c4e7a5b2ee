"""What was recorded, of simulated GPUs or real ones, means the same when it is played again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.monitor.conftest import StartMonitor, has_read
from tests.monitor.make_recording import record
from tests.monitor.waiting import eventually

from treadle.clock import ManualClock
from treadle.devices.device import DeviceKind, Reading
from treadle.devices.metrics import METRICS, MetricKind
from treadle.monitor.recording import Part, Recording, read
from treadle.monitor.replay import replay, seconds_of

FILES = sorted((Path(__file__).parents[1] / "data").glob("*.rec"))
LARGEST_BYTES = 1 << 20
STEP_SECONDS = 0.25
NAMES = [file.name for file in FILES]


def kinds(recording: Recording) -> set[DeviceKind]:
    return {device.kind for part in recording.parts for device in part.segment.devices}


REAL = [file for file in FILES if DeviceKind.NVIDIA in kinds(read(file))]
real = pytest.mark.parametrize(
    "file",
    REAL
    or [pytest.param(None, marks=pytest.mark.skip("no recording of a real GPU in tests/data"))],
    ids=lambda file: file.name if file else "none",
)


@pytest.fixture(params=FILES, ids=NAMES)
def file(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def recording(file: Path) -> Recording:
    return read(file)


def column(part: Part, uuid: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The times and values of a metric, where there are values."""
    for number, samples in part.samples.items():
        one = part.segment.series[number]
        if (one.device, one.metric) == (uuid, metric):
            known = samples[samples["reason"] == 0]
            return known["at"], known["value"]
    return np.zeros(0), np.zeros(0)


def test_it_is_whole_and_small(file: Path, recording: Recording) -> None:
    assert recording.missing == ""
    assert file.stat().st_size <= LARGEST_BYTES
    assert seconds_of(recording) > 5.0


def test_every_value_can_be(recording: Recording) -> None:
    for part in recording.parts:
        for number, samples in part.samples.items():
            one = part.segment.series[number]
            known = samples[samples["reason"] == 0]
            assert (np.diff(samples["at"]) >= 0).all(), one.metric
            assert np.isfinite(known["value"]).all(), one.metric
            assert (known["value"] >= 0).all(), one.metric
            if METRICS[one.metric].unit == "ratio":
                assert (known["value"] <= 1).all(), one.metric
            if METRICS[one.metric].kind is MetricKind.COUNTER:
                assert (np.diff(known["value"]) >= 0).all(), one.metric


def test_what_has_no_value_has_a_reason(recording: Recording) -> None:
    for part in recording.parts:
        places = {int(p) for s in part.samples.values() for p in s["reason"] if p}
        assert all(part.reasons[place - 1] for place in places)


def test_all_of_it_is_played_again(recording: Recording) -> None:
    clock = ManualClock()
    devices = replay(recording, clock)
    readings: list[Reading] = []
    for _ in range(int(seconds_of(recording) / STEP_SECONDS) + 2):
        for device in devices:
            readings += [r for source in device.sources() for r in source.read()]
        clock.advance(STEP_SECONDS)
    recorded = [s for part in recording.parts for s in part.samples.values()]
    assert len(readings) == sum(map(len, recorded))
    total = sum(float(s["value"][s["reason"] == 0].sum()) for s in recorded)
    assert sum(r.value for r in readings if r.value is not None) == pytest.approx(total)
    told = [event for device in devices for event in device.events()]
    assert len(told) == sum(len(part.events) for part in recording.parts)


def test_a_monitor_shows_it_as_it_shows_the_present(
    file: Path, recording: Recording, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(f"treadle.monitor.replay:devices_from=1:{file}")
    expected = {device.uuid for part in recording.parts for device in part.segment.devices}
    assert {device.info.uuid for device in has_read(monitor).devices} == expected
    uuid = min(expected)
    eventually(lambda: len(monitor.history(uuid, "power")) >= 10, "ten readings of the power")


def test_energy_is_the_integral_of_the_power(recording: Recording) -> None:
    for part in recording.parts:
        for device in part.segment.devices:
            at, energy = column(part, device.uuid, "energy")
            times, watts = column(part, device.uuid, "power")
            if len(at) < 5 or len(times) < 5:
                continue
            grid = np.arange(at[0], at[-1], 0.01)
            joules = np.interp(grid, times, watts).sum() * 0.01
            assert energy[-1] - energy[0] == pytest.approx(joules, rel=0.1)


@real
def test_a_real_gpu_was_busy_and_idle_and_drew_more_while_busy(file: Path) -> None:
    part = read(file).parts[0]
    uuid = part.segment.devices[0].uuid
    at, activity = column(part, uuid, "sm_activity")
    times, watts = column(part, uuid, "power")
    assert (activity > 0.8).any()
    assert (activity < 0.1).any()
    then = np.interp(at, times, watts)
    assert then[activity > 0.8].mean() > 1.3 * then[activity < 0.1].mean()


@real
def test_the_gate_counted_launches_of_a_real_gpu(file: Path) -> None:
    part = read(file).parts[0]
    _, launches = column(part, part.segment.devices[0].uuid, "gate_launches")
    assert launches[-1] > launches[0]


def test_a_recording_can_be_made_without_a_gpu(tmp_path: Path) -> None:
    record(tmp_path / "r")
    made = read(tmp_path / "r")
    assert seconds_of(made) == pytest.approx(12.0, abs=0.5)
    assert {event.kind for part in made.parts for event in part.events} >= {"xid"}
