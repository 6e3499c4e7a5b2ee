"""What a recording must show of a phase, if the monitor reads what is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from treadle.bench.monitoring.phases import (
    AFTER,
    GATE,
    IDLE,
    MPS,
    WAVE,
    Check,
    Load,
    Phase,
    Span,
)
from treadle.bench.monitoring.tape import Figures

_GIB = 2**30
_MARGIN = 0.3
"""What is measured so near to an edge may be of both sides of it."""
_SLOW_MARGIN = 0.7
"""The same for the driver's utilisation, which lags."""
_GATE_MARGIN = 0.03
"""The same for what is read of the turnstile every 10 ms."""
_BUSY, _IDLE = 0.8, 0.1
_POWER_RATIO = 1.3
_CONTEXT_BYTES = 2 * _GIB
"""At most, of one program: its context, and what libraries keep."""
_LEAK_BYTES = _GIB // 4
_ENERGY_TOLERANCE = 0.1
_MOST_LAG_SECONDS = 0.5
_MOST_KERNELS = 4
"""For one multiplication, and what else a program launches."""


def check(figures: Figures, phases: Sequence[Phase]) -> list[Check]:
    """Hold a recording against what was done."""
    idle = next(phase for phase in phases if phase.name == IDLE)
    table: dict[str, Callable[[Figures, Phase, Phase], list[Check]]] = {
        IDLE: _idle,
        WAVE: _wave,
        GATE: _gate,
        MPS: _mps,
        AFTER: _after,
    }
    found = []
    for phase in phases:
        if phase.skipped:
            found.append(
                _one(
                    phase,
                    "it was done",
                    False if phase.failed else None,
                    "no failure",
                    phase.skipped,
                )
            )
        else:
            found += table[phase.name](figures, phase, idle)
    return found


def _one(phase: Phase, what: str, passed: bool | None, expected: str, found: str) -> Check:
    return Check(phase=phase.name, what=what, passed=passed, expected=expected, found=found)


def _span(phase: Phase) -> Span:
    return (phase.began, phase.ended)


def _mean(
    figures: Figures, phase: Phase, what: str, metric: str, spans: Sequence[Span],
    holds: Callable[[float], bool], expected: str, margin: float = _MARGIN,
) -> Check:  # fmt: skip
    """Whether the mean of a metric over spans is as it should be."""
    values = figures.within(metric, spans, margin)
    if not len(values):
        reasons = "; ".join(figures.column(metric).reasons) or "no sample lies inside"
        return _one(phase, what, None, expected, reasons)
    mean = float(values.mean())
    return _one(phase, what, holds(mean), expected, f"{mean:.3g} of {len(values)} samples")


def off_spans(load: Load, phase: Phase) -> list[Span]:
    """When a load kept the GPU idle, between its begin and the phase's end."""
    ends = [begin for begin, _ in load.on[1:]] + [phase.ended]
    return [(end, begin) for (_, end), begin in zip(load.on, ends, strict=True) if begin > end]


def _idle(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    spans = [_span(phase)]
    return [
        _mean(figures, phase, "SMs idle", "sm_activity", spans, lambda v: v < _IDLE, f"< {_IDLE}"),
        _mean(figures, phase, "power is told", "power", spans, lambda v: v > 1, "> 1 W"),
    ]


def _wave(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    (load,) = phase.loads
    on, off = load.on, off_spans(load, phase)
    resting = figures.within("power", off, _MARGIN)
    floor = float(resting.mean()) * _POWER_RATIO if len(resting) else 1.0

    def busy(value: float) -> bool:
        return value > _BUSY

    def still(value: float) -> bool:
        return value < _IDLE

    return [
        _mean(figures, phase, "SMs busy under load", "sm_activity", on, busy, f"> {_BUSY}"),
        _mean(figures, phase, "SMs idle between", "sm_activity", off, still, f"< {_IDLE}"),
        _mean(
            figures, phase, "tensor cores busy under load", "tensor_activity", on,
            lambda v: v > _IDLE, f"> {_IDLE}",
        ),
        _mean(
            figures, phase, "utilisation under load", "gpu_utilization", on, busy, f"> {_BUSY}",
            _SLOW_MARGIN,
        ),
        _mean(
            figures, phase, "utilisation between", "gpu_utilization", off, still, f"< {_IDLE}",
            _SLOW_MARGIN,
        ),
        _mean(
            figures, phase, "power above idle under load", "power", on, lambda v: v > floor,
            f"> {floor:.0f} W",
        ),
        _lag(figures, phase, "sm_activity"),
        _lag(figures, phase, "power"),
        _energy(figures, phase),
        *_memory(figures, phase, idle),
        *_processes(figures, phase, idle),
    ]  # fmt: skip


def _lag(figures: Figures, phase: Phase, metric: str) -> Check:
    """How long after a rising edge the first sample above the middle comes."""
    column, load = figures.column(metric), phase.loads[0]
    what, expected = f"{metric} follows an edge", f"within {_MOST_LAG_SECONDS} s"
    high = figures.within(metric, load.on, _MARGIN)
    low = figures.within(metric, off_spans(load, phase), _MARGIN)
    if not len(high) or not len(low):
        return _one(phase, what, None, expected, "; ".join(column.reasons) or "too few samples")
    middle = (high.mean() + low.mean()) / 2
    lags = []
    for begin, end in load.on[1:]:  # before the first, the GPU may have been busy with its start
        above = column.at[(column.at > begin) & (column.at < end) & (column.value > middle)]
        lags.append(float(above[0] - begin) if len(above) else float("inf"))
    if not lags:
        return _one(phase, what, None, expected, "there was one edge only")
    lag = float(np.median(lags))
    return _one(phase, what, lag <= _MOST_LAG_SECONDS, expected, f"median {lag:.3f} s")


def _energy(figures: Figures, phase: Phase) -> Check:
    """The energy counter against the integral of the power."""
    what, expected = "energy agrees with power", f"within {_ENERGY_TOLERANCE:.0%}"
    energy, power = figures.column("energy"), figures.column("power")
    inside = (energy.at >= phase.began) & (energy.at <= phase.ended)
    if inside.sum() < 2 or len(power.at) < 2:
        reasons = "; ".join([*energy.reasons, *power.reasons]) or "too few samples"
        return _one(phase, what, None, expected, reasons)
    first, last = energy.at[inside][0], energy.at[inside][-1]
    counted = float(energy.value[inside][-1] - energy.value[inside][0])
    grid = np.arange(first, last, 0.01)
    integral = float(np.interp(grid, power.at, power.value).sum() * 0.01)
    ratio = counted / integral if integral else float("inf")
    found = f"{counted:.0f} J counted, {integral:.0f} J integrated"
    return _one(phase, what, abs(ratio - 1) <= _ENERGY_TOLERANCE, expected, found)


def _memory(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    """Whether the memory that is used has grown by what the loads have."""
    own = sum(load.memory_bytes for load in phase.loads)
    most = own + _CONTEXT_BYTES * (len(phase.loads) + 1)
    expected = f"{own / _GIB:.1f} to {most / _GIB:.1f} GiB"
    before = figures.within("memory_used", [_span(idle)], 0.0)
    here = figures.within("memory_used", [_span(phase)], _MARGIN)
    if not len(before) or not len(here):
        reasons = "; ".join(figures.column("memory_used").reasons) or "no sample lies inside"
        return [_one(phase, "memory used has grown", None, expected, reasons)]
    grown = float(np.median(here) - np.median(before))
    passed = own <= grown <= most
    return [_one(phase, "memory used has grown", passed, expected, f"{grown / _GIB:.1f} GiB")]


def _processes(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    """Whether the loads are counted, listed with their memory, and told as events."""
    count = len(phase.loads)
    before = figures.within("processes", [_span(idle)], 0.0)
    here = figures.within("processes", [_span(phase)], _MARGIN)
    checks = []
    if len(before) and len(here):
        grown = float(np.median(here) - np.median(before))
        checks.append(
            _one(phase, "processes counted", grown >= count, f"{count} more", f"{grown:g} more")
        )
    else:
        reasons = "; ".join(figures.column("processes").reasons) or "no sample lies inside"
        checks.append(_one(phase, "processes counted", None, f"{count} more", reasons))
    seen = {process.pid: process for process in phase.processes}
    started = " ".join(e.text for e in figures.events if e.kind == "process-start").split()
    words = {word.strip("():,") for word in started}
    for load in phase.loads:
        what, listed = f"{load.name} is listed", seen.get(load.pid)
        if listed is None:
            unknown = {p.reason for p in phase.processes if p.pid is None and p.reason}
            # A process without a number here has a reason; a list without it has none.
            passed = None if unknown else False
            found = "; ".join(sorted(unknown)) or f"listed: {sorted(str(pid) for pid in seen)}"
            checks.append(_one(phase, what, passed, f"pid {load.pid}", found))
            continue
        memory = listed.memory_bytes
        good = memory is None or load.memory_bytes <= memory <= load.memory_bytes + _CONTEXT_BYTES
        size = "no memory" if memory is None else f"{memory / _GIB:.1f} GiB"
        checks.append(
            _one(
                phase,
                what,
                (None if memory is None else True) if good else False,
                f"{load.memory_bytes / _GIB:.1f} GiB and its context",
                f"{size}; {listed.reason}",
            )
        )
        told = str(load.pid) in words
        checks.append(
            _one(phase, f"{load.name} came: event", told, "process-start", "told" if told else "no")
        )
    return checks


def _gate(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    critical, background = phase.loads
    launches = critical.launches + background.launches
    grown = figures.growth("gate_launches", _span(phase))
    expected = f"{launches} to {launches * _MOST_KERNELS}"
    if grown is None:
        reasons = "; ".join(figures.column("gate_launches").reasons)
        counted = _one(phase, "launches counted", None, expected, reasons)
    else:
        passed = launches <= grown <= launches * _MOST_KERNELS
        counted = _one(phase, "launches counted", passed, expected, f"{grown:.0f}")
    own = sum(load.memory_bytes for load in phase.loads)
    most = own + _CONTEXT_BYTES * len(phase.loads)
    spans = [_span(phase)]

    def holds(value: float) -> bool:
        return own <= value <= most

    gate = [
        counted,
        _mean(figures, phase, "members", "gate_members", spans, lambda v: abs(v - 2) < 0.1, "2"),
        _mean(
            figures, phase, "memory at the gate, bytes", "gate_memory", spans, holds,
            f"{own:.3g} to {most:.3g}",
        ),
        _mean(
            figures, phase, "gate busy under critical load", "gate_busy", critical.on,
            lambda v: v > 0.5, "> 0.5", _GATE_MARGIN,
        ),
        _mean(
            figures, phase, "gate open between", "gate_busy", off_spans(critical, phase),
            lambda v: v < _IDLE, f"< {_IDLE}", _GATE_MARGIN,
        ),
    ]  # fmt: skip
    return [
        # Programs sat there: a figure that is missing was lost.
        *(msgspec.structs.replace(one, passed=bool(one.passed)) for one in gate),
        _mean(
            figures, phase, "SMs busy all the time", "sm_activity", background.on,
            lambda v: v > _BUSY, f"> {_BUSY}",
        ),
        *_memory(figures, phase, idle),
        *_processes(figures, phase, idle),
    ]  # fmt: skip


def _mps(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    # Both are on at the same time: where either is, the GPU is busy.
    on = [span for load in phase.loads for span in load.on]
    return [
        _mean(
            figures, phase, "SMs busy under load", "sm_activity", on, lambda v: v > _BUSY,
            f"> {_BUSY}",
        ),
        *_memory(figures, phase, idle),
        *_processes(figures, phase, idle),
    ]  # fmt: skip


def _after(figures: Figures, phase: Phase, idle: Phase) -> list[Check]:
    checks = _idle(figures, phase, idle)
    before = figures.within("memory_used", [_span(idle)], 0.0)
    here = figures.within("memory_used", [_span(phase)], _MARGIN)
    if len(before) and len(here):
        left = float(np.median(here) - np.median(before))
        checks.append(
            _one(
                phase,
                "memory is given back",
                abs(left) <= _LEAK_BYTES,
                f"within {_LEAK_BYTES >> 20} MiB",
                f"{left / 2**20:.0f} MiB more than before",
            )
        )
    counts = figures.column("processes").value
    known = figures.within("processes", [_span(phase)], _MARGIN)
    first = figures.within("processes", [_span(idle)], 0.0)
    if len(counts) and len(known) and len(first):
        gone = float(known[-1] - first[0])
        checks.append(_one(phase, "processes have gone", gone == 0, "0 more", f"{gone:g} more"))
    ended = sum(event.kind == "process-end" for event in figures.events)
    started = sum(event.kind == "process-start" for event in figures.events)
    checks.append(
        _one(
            phase,
            "who came has gone: events",
            ended == started if started else None,
            f"{started}",
            f"{ended}" if started else "nobody was told to have come",
        )
    )
    return checks
