"""What a simulated GPU is doing, integrated over time on a grid of 20 ms."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, fields, replace

from treadle.devices.simulated.physics import Board, Operation, Temperature, operate

TICK_SECONDS = 0.02
UTILIZATION_TICKS = 10
SAMPLES = 119
"""Of power, as many as the driver of an H200 keeps."""
_FINE_SECONDS = SAMPLES * TICK_SECONDS
_COARSE_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What runs, as parts of what could: each from 0 to 1."""

    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    occupancy: float = 0.0
    fp16: float = 0.0
    fp32: float = 0.0
    fp64: float = 0.0

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{part.name}={value!r}; allowed: 0 to 1")


LOAD_PARTS = tuple(part.name for part in fields(Load))


@dataclass(slots=True)
class Traffic:
    """Bytes over a link, and how many more each second."""

    total_bytes: float = 0.0
    bytes_per_second: float = 0.0


@dataclass(slots=True, kw_only=True)
class Totals:
    """Integrals since the start."""

    joules: float = 0.0
    busy_seconds: float = 0.0
    memory_seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOAD_PARTS, 0.0))


class State:
    """Physics with a past. ``advance`` first, then look or change."""

    def __init__(self, board: Board, *, now: float, seed: int, limit_watts: float) -> None:
        self.board = board
        self.load = Load()
        self.awake = False
        self.limit_watts = limit_watts
        self.forced_hot = False
        self.totals = Totals()
        self.traffic = {
            name: Traffic()
            for name in ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received")
        }
        self.samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        """Monotonic seconds and watts."""
        self.utilization: tuple[float, float, float] = (now, 0.0, 0.0)
        """End of the last full window of 0.2 s; part with a kernel, part with memory in use."""
        watts = board.idle_watts
        self.chip = Temperature(board.ambient_celsius, board.heat, watts)
        self.memory = Temperature(board.memory_ambient_celsius, board.memory_heat, watts)
        self._seed = seed
        self._start = self._now = now
        self._tick = 0
        self._hot = False
        self._window_start = (0.0, 0.0)
        self._operation = self._settle()

    @property
    def operation(self) -> Operation:
        return self._operation

    @property
    def hot(self) -> bool:
        """Whether heat holds the clock down."""
        return self._hot or self.forced_hot

    def set(self, **changes: float) -> None:
        """Change parts of the load."""
        self.load = replace(self.load, **changes)
        self.changed()

    def changed(self) -> None:
        """Settle again, after a change of anything that power depends on."""
        self._operation = self._settle()

    def advance(self, to: float) -> None:
        """Go on to a moment; the same moments come out whatever the steps are.

        A long pause is crossed in coarse steps up to the last samples; heat that would hold the
        clock down begins and ends at a step.
        """
        if to - self._now > 2 * _FINE_SECONDS:
            self._cross(to - _FINE_SECONDS)
        while (tick := self._start + (self._tick + 1) * TICK_SECONDS) <= to:
            self._integrate(tick)
            self._tick += 1
            self._sample(tick)
        self._integrate(to)

    def _cross(self, to: float) -> None:
        ticks = int((to - self._start) / TICK_SECONDS)
        first = self._tick + 1
        step = max(1, (ticks - first) // _COARSE_STEPS)
        for tick in range(first, ticks, step):
            self._integrate(self._start + tick * TICK_SECONDS)
            self._check_heat()
        # The next window of utilisation begins where the fine steps do.
        self._tick = ticks - ticks % UTILIZATION_TICKS
        self._integrate(max(self._now, self._start + self._tick * TICK_SECONDS))
        self._window_start = (self.totals.busy_seconds, self.totals.memory_seconds)

    def _integrate(self, to: float) -> None:
        seconds = to - self._now
        if seconds <= 0:
            return
        self._now = to
        watts = self._operation.watts
        self.totals.joules += watts * seconds
        self.totals.busy_seconds += seconds * (self.load.sm > 0)
        self.totals.memory_seconds += seconds * (self.load.dram > 0)
        for part in LOAD_PARTS:
            self.totals.parts[part] += getattr(self.load, part) * seconds
        for traffic in self.traffic.values():
            traffic.total_bytes += traffic.bytes_per_second * seconds
        self.chip.advance(seconds, watts)
        self.memory.advance(seconds, watts)

    def _sample(self, at: float) -> None:
        self._check_heat()
        noise = random.Random((self._seed << 40) ^ self._tick).gauss(0.0, self.board.noise_watts)  # noqa: S311
        self.samples.append((at, max(0.0, self._operation.watts + noise)))
        if self._tick % UTILIZATION_TICKS == 0:
            busy, memory = self._window_start
            window = UTILIZATION_TICKS * TICK_SECONDS
            now = (self.totals.busy_seconds, self.totals.memory_seconds)
            self.utilization = (at, _part(now[0] - busy, window), _part(now[1] - memory, window))
            self._window_start = now

    def _check_heat(self) -> None:
        slowdown = self.board.slowdown_celsius
        # Three degrees between on and off, so that it does not chatter.
        hot = self.chip.celsius > (slowdown - 3.0 if self._hot else slowdown)
        if hot != self._hot:
            self._hot = hot
            self.changed()

    def _settle(self) -> Operation:
        board, load = self.board, self.load
        activity = (
            board.sm_weight * load.sm
            + board.tensor_weight * load.tensor
            + board.dram_weight * load.dram
        )
        return operate(
            board,
            awake=self.awake or activity > 0,
            activity=activity,
            limit_watts=self.limit_watts,
            hot=self.hot,
        )


def _part(seconds: float, of: float) -> float:
    return min(1.0, max(0.0, round(seconds / of, 9)))
