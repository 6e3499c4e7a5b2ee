"""The checks of a recording pass where it shows what was done, and fail where it does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.monitor.fakes import FakeDevice

from treadle.bench.monitoring.checks import check, off_spans
from treadle.bench.monitoring.cost import RIVALS, cpu_seconds, measure_rival, without_gpm
from treadle.bench.monitoring.phases import AFTER, GATE, IDLE, MPS, WAVE, Check, Load, Phase, Seen
from treadle.bench.monitoring.scenario import clean_environment
from treadle.bench.monitoring.tape import Figures
from treadle.devices.device import DeviceEvent, Severity
from treadle.monitor import ring
from treadle.monitor.directory import Directory, Series
from treadle.monitor.recording import Recorder, read
from treadle.monitor.ring import Reader, Writer

GIB = 1 << 30
LOAD = Load(name="wave", pid=42, memory_bytes=4 * GIB, on=((10.0, 12.0), (14.0, 16.0)), launches=99)
PHASES = [
    Phase(name=IDLE, began=5.0, ended=8.0),
    Phase(
        name=WAVE,
        began=10.0,
        ended=18.0,
        loads=(LOAD,),
        processes=(Seen(pid=42, name="python", memory_bytes=5 * GIB, sm_activity=0.5, reason=""),),
    ),
    Phase(name=MPS, skipped="MPS: no nvidia-cuda-mps-control here"),
    Phase(name=AFTER, began=20.0, ended=23.0),
]
METRICS = (
    *("sm_activity", "tensor_activity", "gpu_utilization", "power", "energy", "memory_used"),
    *("processes", "gate_launches", "gate_members", "gate_memory", "gate_busy"),
)
Truth = dict[str, Callable[[float], float | None]]


def is_on(at: float) -> bool:
    return any(begin <= at < end for begin, end in LOAD.on)


def truth() -> Truth:
    """What a GPU shows that was used as ``PHASES`` says."""
    return {
        "sm_activity": lambda at: float(is_on(at)),
        "tensor_activity": lambda at: 0.9 * is_on(at),
        "gpu_utilization": lambda at: float(is_on(at)),
        "power": lambda at: 600.0 if is_on(at) else 100.0,
        "energy": lambda at: 100.0 * at + 500.0 * sum(
            min(max(at - begin, 0.0), end - begin) for begin, end in LOAD.on
        ),
        "memory_used": lambda at: (5.0 * GIB if 9.0 <= at < 19.0 else 0.0) + GIB,
        "processes": lambda at: float(9.0 <= at < 19.0),
        "gate_launches": lambda at: 0.0,
        "gate_members": lambda at: 0.0,
        "gate_memory": lambda at: 0.0,
        "gate_busy": lambda at: 0.0,
    }  # fmt: skip


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Callable[[Truth], Figures]]:
    """Records a truth, and reads it back."""
    memory = ring.create()

    def make(values: Truth) -> Figures:
        series = tuple(Series("FAKE-0", metric, "fake", 0.05) for metric in METRICS)
        writer = Writer(memory, Directory((FakeDevice(0).info,), (), series))
        for step in range(100, 480):
            for number, metric in enumerate(METRICS):
                value = values[metric](step / 20)
                writer.write(number, step / 20, value, 0.0, "" if value is not None else "a fake")
        writer.ready()
        events = [
            DeviceEvent(9.0, "FAKE-0", "process-start", Severity.INFO, "python (pid 42)"),
            DeviceEvent(19.0, "FAKE-0", "process-end", Severity.INFO, "python (pid 42)"),
        ]
        with Recorder(tmp_path / "r") as recorder:
            recorder.take(Reader(memory), events)
        return Figures(read(tmp_path / "r").parts[0], "FAKE-0")

    yield make
    os.close(memory)


def verdicts(checks: list[Check], phase: str = WAVE) -> dict[str, bool | None]:
    return {one.what: one.passed for one in checks if one.phase == phase}


def test_a_recording_that_shows_what_was_done_passes(
    figures: Callable[[Truth], Figures],
) -> None:
    checks = check(figures(truth()), PHASES)
    assert [one for one in checks if one.passed is False] == []
    assert set(verdicts(checks).values()) == {True}
    (skipped,) = (one for one in checks if one.phase == MPS)
    assert (skipped.passed, skipped.found) == (None, "MPS: no nvidia-cuda-mps-control here")


@pytest.mark.parametrize(
    ("metric", "wrong", "what"),
    [
        ("sm_activity", 0.5, "SMs busy under load"),
        ("sm_activity", 0.5, "SMs idle between"),
        ("gpu_utilization", 0.0, "utilisation under load"),
        ("power", 100.0, "power above idle under load"),
        ("energy", 7.0, "energy agrees with power"),
        ("memory_used", 5.0 * GIB, "memory used has grown"),
        ("processes", 1.0, "processes counted"),
    ],
)
def test_a_figure_that_does_not_follow_fails(
    figures: Callable[[Truth], Figures], metric: str, wrong: float, what: str
) -> None:
    values = truth() | {metric: lambda at: wrong}
    assert verdicts(check(figures(values), PHASES))[what] is False


def test_a_figure_that_comes_late_fails(figures: Callable[[Truth], Figures]) -> None:
    values = truth() | {"power": lambda at: 600.0 if is_on(at - 1.0) else 100.0}
    assert verdicts(check(figures(values), PHASES))["power follows an edge"] is False


def test_a_figure_that_is_not_there_is_told_with_its_reason(
    figures: Callable[[Truth], Figures],
) -> None:
    checks = check(figures(truth() | {"sm_activity": lambda at: None}), PHASES)
    (one,) = (c for c in checks if c.phase == WAVE and c.what == "SMs busy under load")
    assert (one.passed, one.found) == (None, "a fake")


def test_a_process_without_a_number_here_is_no_failure(
    figures: Callable[[Truth], Figures],
) -> None:
    seen = Seen(pid=None, name="", memory_bytes=None, sm_activity=None, reason="elsewhere")
    wave = PHASES[1]
    elsewhere = Phase(
        name=WAVE, began=wave.began, ended=wave.ended, loads=wave.loads, processes=(seen,)
    )
    nowhere = Phase(name=WAVE, began=wave.began, ended=wave.ended, loads=wave.loads)
    recorded = figures(truth())
    assert verdicts(check(recorded, [PHASES[0], elsewhere]))["wave is listed"] is None
    assert verdicts(check(recorded, [PHASES[0], nowhere]))["wave is listed"] is False


def test_a_program_that_failed_is_a_failure(figures: Callable[[Truth], Figures]) -> None:
    phases = [PHASES[0], Phase(name=GATE, skipped="critical died", failed=True)]
    assert verdicts(check(figures(truth()), phases), GATE) == {"it was done": False}


@pytest.mark.parametrize(("launches_per_second", "passed"), [(50.0, True), (0.0, False)])
def test_launches_are_counted_at_the_gate(
    figures: Callable[[Truth], Figures], launches_per_second: float, passed: bool
) -> None:
    background = Load(name="b", pid=43, memory_bytes=GIB, on=((10.0, 18.0),), launches=200)
    phase = Phase(name=GATE, began=10.0, ended=18.0, loads=(LOAD, background))
    values = truth() | {
        "gate_launches": lambda at: max(0.0, min(at - 10.0, 8.0)) * launches_per_second,
        "gate_members": lambda at: 2.0,
        "gate_memory": lambda at: 5.5 * GIB,
        "gate_busy": lambda at: float(is_on(at)),
    }
    told = verdicts(check(figures(values), [PHASES[0], phase]), GATE)
    assert told["launches counted"] is passed
    for what in ("members", "memory at the gate, bytes", "gate open between"):
        assert told[what] is True, what


@pytest.mark.parametrize(("lags", "passed"), [(0.0, True), (0.4, False)])
def test_half_a_second_of_critical_load_is_seen_at_the_gate(
    figures: Callable[[Truth], Figures], lags: float, passed: bool
) -> None:
    on = ((11.0, 11.5), (13.0, 13.5), (15.0, 15.5))
    critical = Load(name="c", pid=42, memory_bytes=GIB, on=on, launches=99)
    phase = Phase(name=GATE, began=10.0, ended=18.0, loads=(critical, LOAD))
    values = truth() | {
        "gate_busy": lambda at: float(any(b <= at - lags < e for b, e in on)),
    }
    told = verdicts(check(figures(values), [PHASES[0], phase]), GATE)
    assert told["gate busy under critical load"] is passed


def test_a_gate_that_counts_nothing_is_a_failure(figures: Callable[[Truth], Figures]) -> None:
    phase = Phase(name=GATE, began=10.0, ended=18.0, loads=(LOAD, LOAD))
    values = truth() | {"gate_launches": lambda at: None, "gate_members": lambda at: None}
    told = verdicts(check(figures(values), [PHASES[0], phase]), GATE)
    assert (told["launches counted"], told["members"]) == (False, False)


def test_between_two_loads_the_gpu_is_off() -> None:
    assert off_spans(LOAD, PHASES[1]) == [(12.0, 14.0), (16.0, 18.0)]


def test_a_rival_that_is_not_there_has_a_reason() -> None:
    blind = clean_environment() | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    cost = measure_rival(RIVALS[0], 0.1, blind)
    assert "nvitop" in cost.reason


def test_the_performance_monitor_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_SIMULATED_GPUS", "1")
    devices, _ = without_gpm()
    names = [source.name for source in devices[-1].sources()]
    assert names
    assert not [name for name in names if "gpm" in name]
    for device in devices:
        device.close()


def test_cpu_time_of_a_process_grows() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        pass
