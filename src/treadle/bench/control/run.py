"""One situation under fixed knobs or a controller, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from treadle.bench.control.load import Situation
from treadle.bench.control.model import Gpu, Machine
from treadle.errors import TreadleError
from treadle.schedule.control import Controller, GateView, Knobs, Observation, TaskLatency
from treadle.schedule.control.levels import GENEROUS, PROTECTIVE, USUAL, settings_at
from treadle.types import NEAR_FRACTION, LatencyKind, LatencyWindow, Objective

STEP_SECONDS = 0.05
SCRAPE_SECONDS = 1.0
MINIMUM_DUTY = 0.01
_TASK, _TRAINING = "server", "training"
BOUNDS = (1e-3, 2e-3, 4e-3, 8e-3, 10e-3, 15e-3, 25e-3, 50e-3, 0.1, 0.25, 1.0)
"""Of a scraped histogram, seconds."""

Mode = str
FIXED: Mapping[Mode, float] = {
    "fixed: protective": PROTECTIVE,
    "fixed: usual": USUAL,
    "fixed: generous": GENEROUS,
}
ALONE, SAMPLED, SCRAPED = "alone", "controller", "controller, scraped"
MODES: tuple[Mode, ...] = (ALONE, *FIXED, SAMPLED, SCRAPED)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Seconds and fractions; what is not known is null."""

    situation: str
    mode: Mode
    seed: int
    requests: int
    p50_seconds: float
    p99_seconds: float
    objective_seconds: float
    late_per_thousand: float
    late_after_settling_per_thousand: float | None
    settled_seconds: float | None
    """From when the level stays within 0.1 of its median over the second half."""
    recovered_seconds: float | None
    """From the start of a burst to the end of the last second with over 5% late requests."""
    late_seconds: int
    """Seconds in which over 5% of the requests were late."""
    kept_fraction: float
    """Training done, as a part of what the requests leave of the GPU's time."""
    level: float | None
    """The median over the second half."""
    turned: int
    """Steps that changed a knob."""
    told: tuple[tuple[float, str], ...]
    """When, and what, was said of an objective that cannot be met."""


@dataclass(slots=True)
class _Steering:
    """The loop around a controller: what it is shown, and when."""

    controller: Controller
    objective: float
    every: float
    kind: LatencyKind
    gpu: Gpu
    ends: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    due: float = STEP_SECONDS
    busy: float = 0.0
    seen: int = 0
    read_at: float = 0.0
    newest: LatencyWindow | None = None
    levels: list[tuple[float, float]] = field(default_factory=list)
    turned: int = 0
    told: list[tuple[float, str]] = field(default_factory=list)

    def __call__(self, now: float) -> None:
        while self.due <= now:
            self._step(self.due)
            self.due += STEP_SECONDS

    def _step(self, now: float) -> None:
        if now >= self.read_at + self.every - 1e-9:
            end = self.seen
            while end < len(self.ends) and self.ends[end] <= now:
                end += 1
            part = np.array(self.latencies[self.seen : end])
            self.newest = window(part, self.objective, self.kind, now, now - self.read_at)
            self.seen, self.read_at = end, now
        task = TaskLatency(
            task=_TASK,
            objective=Objective(p99_seconds=self.objective),
            latency=self.newest,
        )
        busy = self.gpu.busy_seconds
        gate = GateView(critical_busy_fraction=min(1.0, (busy - self.busy) / STEP_SECONDS))
        self.busy = busy
        self.gpu.settings = self.controller.step(
            Observation(tasks=(task,), gate=gate, neighbours=(_TRAINING,)), now
        )
        self.levels.append((now, self.controller.last.level))
        self.turned += bool(self.controller.last.changed)
        words = self.controller.report().tasks[0].impossible
        if words != (self.told[-1][1] if self.told else ""):
            self.told.append((round(now, 2), words))


def window(
    latencies: NDArray[np.float64],
    objective: float,
    kind: LatencyKind,
    at: float,
    length: float,
) -> LatencyWindow:
    """What a source would tell of these latencies: exactly, or by ``BOUNDS``."""

    def beyond(limit: float) -> tuple[int, int]:
        if kind is LatencyKind.SAMPLES:
            over = int((latencies > limit).sum())
            return over, over
        bounds = np.array([0.0, *BOUNDS, np.inf])
        low, high = bounds[bounds <= limit][-1], bounds[bounds >= limit][0]
        return int((latencies > high).sum()), int((latencies > low).sum())

    return LatencyWindow(
        at=at,
        window_seconds=length,
        kind=kind,
        count=len(latencies),
        over=beyond(objective),
        near=beyond(NEAR_FRACTION * objective),
        p99_seconds=float(np.quantile(latencies, 0.99)) if len(latencies) else None,
    )


def simulate(name: str, situation: Situation, mode: Mode, seed: int) -> Result:
    """Run one situation in one mode. The same seed gives the same arrivals in every mode."""
    settings = settings_at(level_of(mode), MINIMUM_DUTY)
    gpu = Gpu(Machine(), situation.service, settings, seed=seed + 1, training=mode != ALONE)
    steering = _steering(mode, situation, gpu)
    arrivals = situation.arrivals(seed)
    between: Callable[[float], None] = steering or (lambda now: None)
    ends: list[float] = steering.ends if steering else []
    latencies: list[float] = steering.latencies if steering else []
    for arrived in arrivals.tolist():
        end = gpu.answer(arrived, between)
        ends.append(end)
        latencies.append(end - arrived)
    gpu.finish(situation.seconds)
    return _result(name, situation, mode, seed, gpu, np.array(ends), np.array(latencies), steering)


def level_of(mode: Mode) -> float:
    """The level that a mode starts with, and keeps unless it is a controller's.

    Raises:
        TreadleError: If there is no such mode.
    """
    if mode in (ALONE, SAMPLED, SCRAPED):
        return USUAL
    try:
        level = FIXED[mode] if mode in FIXED else float(mode.removeprefix("fixed: "))
    except ValueError:
        level = -1.0
    if not PROTECTIVE <= level <= GENEROUS:
        raise TreadleError(f"no mode {mode!r}; there are {', '.join(MODES)}, and fixed: 0 to 1")
    return level


def _steering(mode: Mode, situation: Situation, gpu: Gpu) -> _Steering | None:
    if mode not in (SAMPLED, SCRAPED):
        return None
    controller = Controller("the GPU", Knobs(), minimum_duty_fraction=MINIMUM_DUTY)
    kind = LatencyKind.SAMPLES if mode == SAMPLED else LatencyKind.HISTOGRAM
    every = STEP_SECONDS if mode == SAMPLED else SCRAPE_SECONDS
    return _Steering(controller, situation.objective_seconds, every, kind, gpu)


def _result(
    name: str,
    situation: Situation,
    mode: Mode,
    seed: int,
    gpu: Gpu,
    ends: NDArray[np.float64],
    latencies: NDArray[np.float64],
    steering: _Steering | None,
) -> Result:
    late = latencies > situation.objective_seconds
    level, settled = _settled(steering, situation.seconds / 2)
    seconds = ends.astype(int)
    by_second = np.bincount(seconds)
    bad = np.flatnonzero(np.bincount(seconds, weights=late) > 0.05 * by_second)
    after_burst = bad[bad >= situation.burst[0]] if situation.burst else bad[:0]
    after = late[ends > settled] if settled is not None else late[:0]
    span = max(situation.seconds, float(ends[-1]))
    served = 2 * situation.service.part_seconds * len(latencies)
    return Result(
        situation=name,
        mode=mode,
        seed=seed,
        requests=len(latencies),
        p50_seconds=float(np.median(latencies)),
        p99_seconds=float(np.quantile(latencies, 0.99)),
        objective_seconds=situation.objective_seconds,
        late_per_thousand=1000 * float(late.mean()),
        late_after_settling_per_thousand=1000 * float(after.mean()) if len(after) else None,
        settled_seconds=settled,
        recovered_seconds=(
            float(after_burst[-1] + 1 - situation.burst[0])
            if situation.burst and len(after_burst)
            else None
        ),
        late_seconds=len(bad),
        kept_fraction=gpu.trained_seconds / (span - served),
        level=level,
        turned=steering.turned if steering else 0,
        told=tuple(steering.told) if steering else (),
    )


def _settled(steering: _Steering | None, half: float) -> tuple[float | None, float | None]:
    if steering is None:
        return None, None
    at, levels = np.array(steering.levels).T
    level = float(np.median(levels[at > half]))
    away = np.flatnonzero(np.abs(levels - level) > 0.1)
    settled = float(at[away[-1]]) if len(away) else 0.0
    return level, settled if settled < at[-1] else None
