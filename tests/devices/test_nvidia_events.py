"""Events of an NVIDIA GPU, told by a library that is not here."""

from __future__ import annotations

from collections.abc import Mapping

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.devices.fake_nvml import FakeGPU, FakeNVML

from treadle.clock import ManualClock
from treadle.devices.device import Severity
from treadle.devices.nvidia import NVML, NvidiaGPU, processes

XID = pynvml.nvmlEventTypeXidCriticalError


class Seen:
    """A GPU whose events are looked at."""

    def __init__(self) -> None:
        self.clock = ManualClock(50.0)
        self.gpu = FakeGPU(throttle=0)
        self.library = FakeNVML(self.gpu, clock=self.clock.now)

    def open(self) -> NvidiaGPU:
        return NvidiaGPU(NVML(self.library), 0, clock=self.clock)


@pytest.fixture
def seen() -> Seen:
    return Seen()


def kinds(device: NvidiaGPU) -> list[str]:
    return [event.kind for event in device.events()]


def test_nothing_happens_on_a_gpu_that_is_well(seen: Seen) -> None:
    device = seen.open()
    assert kinds(device) + kinds(device) == []


@pytest.mark.parametrize(
    ("number", "severity", "text"),
    [
        (79, Severity.ERROR, "fallen off the bus"),
        (31, Severity.WARNING, "a program's fault"),
        (999, Severity.ERROR, "NVIDIA's list"),
    ],
)
def test_an_xid_is_told_once_without_waiting(
    seen: Seen, number: int, severity: Severity, text: str
) -> None:
    device = seen.open()
    seen.gpu.events.append((XID, number))
    (event,) = device.events()
    assert (event.kind, event.severity, event.device) == ("xid", severity, "GPU-1")
    assert event.at == 50.0
    assert f"XID {number}" in event.text
    assert text in event.text
    assert kinds(device) == []


def test_a_storm_of_events_does_not_keep_the_caller(seen: Seen) -> None:
    device = seen.open()
    seen.gpu.events.extend([(XID, 31)] * 1000)
    assert 0 < len(device.events()) < 1000


def test_memory_errors_are_told(seen: Seen) -> None:
    device = seen.open()
    seen.gpu.events.append((pynvml.nvmlEventTypeDoubleBitEccError, 0))
    assert kinds(device) == ["ecc"]


def test_throttling_begins_and_ends_once(seen: Seen) -> None:
    device = seen.open()
    device.events()
    seen.gpu.throttle = 0x4
    (begins,) = device.events()
    assert (begins.kind, begins.text) == ("throttle-start", "clocks held down: power")
    seen.gpu.throttle = 0x20
    assert kinds(device) == []  # still held
    seen.gpu.throttle = 0x1
    assert kinds(device) == ["throttle-end"]


def test_processes_start_and_end(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    names: Mapping[int, str] = {11: "first", 12: "second", 13: "third"}
    monkeypatch.setattr(processes, "name_here", names.get)
    seen.gpu.processes = [(11, None)]
    device = seen.open()
    assert kinds(device) == []  # who was there before has not started now
    seen.gpu.processes = [(12, None), (13, None), (99, None)]
    told = [(event.kind, event.text) for event in device.events()]
    assert told == [
        ("process-start", "second (pid 12)"),
        ("process-start", "third (pid 13)"),
        ("process-end", "first (pid 11)"),
    ]


def test_mig_that_is_turned_on_is_told(seen: Seen) -> None:
    device = seen.open()
    device.events()
    seen.gpu.mig = True
    seen.clock.advance(10.0)
    (event,) = device.events()
    assert (event.kind, event.text) == ("partition", "MIG was off, is on, without instances")


def test_without_permission_for_events_the_others_still_come(seen: Seen) -> None:
    seen.library.fails["nvmlDeviceRegisterEvents"] = pynvml.NVML_ERROR_NO_PERMISSION
    device = seen.open()
    (event,) = device.events()
    assert (event.kind, event.severity) == ("source-failed", Severity.INFO)
    assert "may not ask" in event.text
    assert seen.library.open_event_sets == 0
    seen.gpu.throttle = 0x4
    assert kinds(device) == ["throttle-start"]


def test_a_way_to_see_events_that_fails_says_so_once_and_when_it_is_back(seen: Seen) -> None:
    device = seen.open()
    device.events()
    call = "nvmlDeviceGetComputeRunningProcesses"
    seen.library.fails[call] = pynvml.NVML_ERROR_UNKNOWN
    assert kinds(device) + kinds(device) == ["source-failed"]
    del seen.library.fails[call]
    assert kinds(device) == ["source-back"]


def test_a_gpu_that_is_lost_says_so_once(seen: Seen) -> None:
    device = seen.open()
    seen.gpu.lost = True
    (event,) = device.events()
    assert (event.kind, event.severity) == ("gone", Severity.ERROR)
    assert kinds(device) == []


def test_closing_twice_gives_back_once(seen: Seen) -> None:
    device = seen.open()
    device.close()
    device.close()
    assert seen.library.open_event_sets == 0
    assert seen.library.calls.count("nvmlEventSetFree") == 1
