"""When requests arrive: drawn beforehand, so that every policy and server meets the same ones.

A pattern turns a mean rate into times. The same pattern at another rate gives the same times,
stretched, but where a burst has its own clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treadle.errors import ConfigError

Floats = NDArray[np.float64]
_SPARE_DEVIATIONS = 6
_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Which model is asked when."""

    models: tuple[str, ...]
    seconds: float
    """Arrivals lie in ``[0, seconds)``."""
    times: Floats
    """Seconds from the start, ascending; shape ``[arrivals]``."""
    model_index: NDArray[np.intp]
    """Place in ``models`` of the model that is asked; shape ``[arrivals]``."""

    def __len__(self) -> int:
        return len(self.times)

    def part(self, number: int, of: int) -> Schedule:
        """Every ``of``-th arrival, from the one with this number on."""
        return Schedule(
            models=self.models,
            seconds=self.seconds,
            times=self.times[number::of],
            model_index=self.model_index[number::of],
        )


class Pattern(Protocol):
    """How the requests of one model are spread over time."""

    def __call__(
        self, rate: float, seconds: float, random: np.random.Generator, phase: float
    ) -> Floats:
        """Draw the times at which requests are due, ascending, in ``[0, seconds)``.

        Args:
            rate: Requests per second, above 0.
            seconds: For how long.
            random: Where chance comes from.
            phase: From 0 to below 1, another one for each model: what keeps models apart where
                chance does not.
        """
        ...


def poisson(rate: float, seconds: float, random: np.random.Generator, phase: float = 0) -> Floats:
    """Independent users: sums of exponential gaps."""
    expected = rate * seconds
    chunk = int(expected + _SPARE_DEVIATIONS * math.sqrt(expected)) + 1
    times = np.cumsum(random.exponential(1 / rate, chunk))
    while times[-1] < seconds:
        times = np.append(times, times[-1] + np.cumsum(random.exponential(1 / rate, chunk)))
    return times[times < seconds]


def constant(rate: float, seconds: float, random: np.random.Generator, phase: float) -> Floats:
    """Equal gaps."""
    times = (np.arange(math.ceil(rate * seconds) + 1) + phase) / rate
    return np.asarray(times[times < seconds], np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursty:
    """A Poisson process that for a part of every period is ``factor`` times its mean."""

    factor: float = 3.0
    burst_seconds: float = 1.0
    period_seconds: float = 10.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``3:1:10``.

        Raises:
            ConfigError: If it is no such thing; says what is allowed.
        """
        parts = text.split(":")
        try:
            if len(parts) != _PARTS:
                raise ValueError
            factor, burst, period = map(float, parts)
        except ValueError:
            raise ConfigError(f"{text!r}; allowed: FACTOR:SECONDS:PERIOD, as in 3:1:10") from None
        if not (factor > 0 and 0 < burst < period < math.inf and factor * burst <= period):
            raise ConfigError(
                f"{text!r}; allowed: SECONDS below PERIOD, and FACTOR x SECONDS at most PERIOD, or "
                "the mean cannot be kept"
            )
        return cls(factor=factor, burst_seconds=burst, period_seconds=period)

    def __str__(self) -> str:
        return f"{self.factor:g}:{self.burst_seconds:g}:{self.period_seconds:g}"

    def __call__(
        self, rate: float, seconds: float, random: np.random.Generator, phase: float
    ) -> Floats:
        """Bursts of all models fall together, at the end of each period."""
        quiet = self.period_seconds - self.burst_seconds
        low = rate * (self.period_seconds - self.factor * self.burst_seconds) / quiet
        periods = math.ceil(seconds / self.period_seconds)
        starts = np.arange(periods + 1) * self.period_seconds
        edges = np.stack([starts, starts + quiet], axis=1).ravel()[:-1]
        times = changing(edges, np.tile([low, self.factor * rate], periods), random)
        return times[times < seconds]


def changing(edges: ArrayLike, rates: ArrayLike, random: np.random.Generator) -> Floats:
    """A Poisson process whose rate changes, by inversion (Cinlar 1975).

    Args:
        edges: Where rates change, in seconds, ascending, with both ends; shape ``[parts + 1]``.
        rates: Requests per second in each part, at least 0; shape ``[parts]``.
        random: Where chance comes from.
    """
    ends = np.asarray(edges, np.float64)
    expected = np.append(0.0, np.cumsum(np.diff(ends) * np.asarray(rates, np.float64)))
    return np.interp(poisson(1.0, float(expected[-1]), random), expected, ends)


def draw_arrivals(
    rates: Mapping[str, float], seconds: float, seed: int, pattern: Pattern = poisson
) -> Schedule:
    """Draw the arrivals of each model, independent of each other.

    Chance depends on the seed and the model's name alone: another model beside it does not change
    its Poisson process, and another rate stretches it.

    Args:
        rates: Requests per second by model, each above 0.
        seconds: How long requests arrive.
        seed: Of the random numbers; at least 0.
        pattern: How they are spread.
    """
    models = tuple(sorted(rates))
    by_model = [
        pattern(
            rates[name],
            seconds,
            np.random.default_rng([seed, *name.encode()]),
            place / len(models),
        )
        for place, name in enumerate(models)
    ]
    times = np.concatenate(by_model)
    index = np.repeat(np.arange(len(models)), [len(drawn) for drawn in by_model])
    order = np.argsort(times, kind="stable")
    return Schedule(models=models, seconds=seconds, times=times[order], model_index=index[order])
