"""A GPU in virtual time: a critical server, a training that floods it, and the gate between.

What is modelled, and what is not, is in ``docs/measurements/control-simulated.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treadle.schedule.control.knobs import BUDGET, DUTY, LINGER

_SLACK_SECONDS = 20e-6
_DUTY_WINDOW_SECONDS = 1.0
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What does not change: seconds."""

    slice_seconds: float = 2e-3
    """The driver takes the GPU from a kernel after so long."""
    switch_seconds: float = 50e-6
    """From one process to another."""
    launch_seconds: float = 8e-6
    """Between two launches of the training, on the CPU."""
    hiccup_every: int = 500
    """Launches, on average, between which the training's CPU side is late."""
    hiccup_seconds: float = 1e-3
    wake_seconds: float = 15e-6
    """From the end of what a launch waits for to the start of its kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a request takes: two parts, and a pause on the CPU between, when nothing is marked."""

    part_seconds: float
    pause_seconds: float = 0.2e-3
    spread: float = 0.1
    """Of a part's length: the standard deviation of its logarithm."""


KERNELS = (
    (5e-6, 30e-6, 0.02),
    (30e-6, 100e-6, 0.13),
    (100e-6, 300e-6, 0.50),
    (300e-6, 1e-3, 0.25),
    (1e-3, 2.9e-3, 0.10),
)
"""From, to, and the part of the time in kernels of that length: a transformer's training."""


def kernel_lengths(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Lengths in seconds, logarithmically uniform in each row of ``KERNELS``."""
    low, high, share = (np.array(column) for column in zip(*KERNELS, strict=True))
    mean = (high - low) / np.log(high / low)
    often = share / mean
    row = random.choice(len(KERNELS), size=count, p=often / often.sum())
    lengths: NDArray[np.float64] = low[row] * (high[row] / low[row]) ** random.random(count)
    return lengths


class Gpu:
    """One run. Requests are answered in the order that they arrive."""

    def __init__(
        self,
        machine: Machine,
        service: Service,
        settings: Mapping[str, float],
        *,
        seed: int,
        training: bool = True,
    ) -> None:
        self._machine, self._service = machine, service
        self._random = np.random.default_rng(seed)
        self._lengths = kernel_lengths(self._random, 1 << 16).tolist()
        self._next = 0
        self._training = training
        self._host = self._flight = 0.0
        self._debt = self._gate_at = 0.0
        self.settings = settings
        self.trained_seconds = 0.0
        """GPU time of the kernels launched."""
        self.duty_passes = 0
        self.busy_seconds = 0.0
        """Time that requests took, from when each could begin."""
        self.idle_from = 0.0
        """The end of the last request."""

    def answer(self, arrived: float, between: Callable[[float], None]) -> float:
        """Run a request; give the time of its answer. ``between`` is told of the time before."""
        start = max(arrived, self.idle_from)
        between(start)
        if arrived > self.idle_from:
            self._open(self.idle_from + self.settings[LINGER], arrived)
        at = self._part(self._enter(start))
        if pause := self._service.pause_seconds:
            self._open(at + self.settings[LINGER], at + pause)
            at = self._part(self._enter(at + pause))
        self.busy_seconds += at - start
        self.idle_from = at
        return at

    def finish(self, at: float) -> None:
        """Let the training run to the end of the measurement."""
        self._open(self.idle_from + self.settings[LINGER], at)

    def _open(self, start: float, end: float) -> None:
        """The gate is open from ``start`` to ``end``: the training launches within its budget."""
        if start >= end or not self._training:
            return
        self._pay(start, open_=False)
        machine, budget = self._machine, self.settings[BUDGET]
        host, flight = max(self._host, start), max(self._flight, start)
        while True:
            length = self._lengths[self._next]
            room = max(budget - length, _SLACK_SECONDS)
            launch = max(host, flight - room)
            if launch >= end:
                break
            self._next = (self._next + 1) % len(self._lengths)
            flight = max(flight, launch + machine.wake_seconds) + length
            host = launch + machine.launch_seconds
            if self._random_is_late():
                host += machine.hiccup_seconds
            self.trained_seconds += length
        self._host, self._flight = host, flight
        self._pay(end, open_=True)

    def _random_is_late(self) -> bool:
        return self._next % self._machine.hiccup_every == 0

    def _enter(self, at: float) -> float:
        """When a part begins that could begin at ``at``: behind what is in flight."""
        left = self._flight - at
        if left <= 0:
            return at
        waited = min(left, self._machine.slice_seconds)
        began = at + waited + self._machine.switch_seconds
        self._flight = began + (left - waited)  # the rest runs when the server is done
        return began

    def _part(self, at: float) -> float:
        """The end of a part that begins at ``at``; minimum duty lets kernels in between."""
        service, suspended = self._service, self._flight - at
        length = service.part_seconds * float(np.exp(service.spread * self._random.normal()))
        self._pay(at, open_=False)
        turn = at  # the driver's time slices alternate: neither side can shut the other out
        while self._training:
            passes = max(self._passes_at(at, self._lengths[self._next]), turn)
            if passes > at + length:
                break
            length -= passes - at
            at = passes + self._let_through(passes) + 2 * self._machine.switch_seconds
            turn = at + self._machine.slice_seconds
        end = at + length
        if suspended > 0:
            self._flight = end + suspended
        self._pay(end, open_=False)
        return end

    def _let_through(self, now: float) -> float:
        """The kernels that are owed now and fit the budget; their length together."""
        self._pay(now, open_=False)
        ran = 0.0
        while True:
            kernel = self._lengths[self._next]
            wanted = min(kernel, self.settings[DUTY] * _DUTY_WINDOW_SECONDS)
            if ran and (self._debt < wanted or ran + kernel > self.settings[BUDGET]):
                break
            self._next = (self._next + 1) % len(self._lengths)
            self._debt -= kernel
            ran += kernel
            self.duty_passes += 1
        self.trained_seconds += ran
        return ran

    def _passes_at(self, now: float, kernel: float) -> float:
        """When so much is owed, with the gate closed."""
        duty = self.settings[DUTY]
        wanted = min(kernel, duty * _DUTY_WINDOW_SECONDS)
        return now + (wanted - self._debt) / duty if duty > 0 else _NEVER

    def _pay(self, now: float, *, open_: bool) -> None:
        duty, elapsed = self.settings[DUTY], max(0.0, now - self._gate_at)
        most = duty * _DUTY_WINDOW_SECONDS
        self._debt += min(elapsed, _DUTY_WINDOW_SECONDS) * duty - (elapsed if open_ else 0.0)
        self._debt = min(most, max(-most, self._debt))
        self._gate_at = max(self._gate_at, now)
