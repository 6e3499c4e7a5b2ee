"""When requests arrive: drawn beforehand, so that every policy meets the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SPARE_DEVIATIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Which model is asked when."""

    models: tuple[str, ...]
    seconds: float
    """Arrivals lie in ``[0, seconds)``."""
    times: NDArray[np.float64]
    """Seconds from the start, ascending; shape ``[arrivals]``."""
    model_index: NDArray[np.intp]
    """Place in ``models`` of the model that is asked; shape ``[arrivals]``."""

    def __len__(self) -> int:
        return len(self.times)


def draw_arrivals(rates: Mapping[str, float], seconds: float, seed: int) -> Schedule:
    """Draw a Poisson process for each model, independent of each other.

    A model's arrivals depend on the seed, its name and its rate alone: another model beside it
    does not change them, and another rate stretches them.

    Args:
        rates: Requests per second by model, each above 0.
        seconds: How long requests arrive.
        seed: Of the random numbers; at least 0.
    """
    models = tuple(sorted(rates))
    by_model = [_draw(rates[name], seconds, [seed, *name.encode()]) for name in models]
    times = np.concatenate(by_model)
    index = np.repeat(np.arange(len(models)), [len(drawn) for drawn in by_model])
    order = np.argsort(times, kind="stable")
    return Schedule(models=models, seconds=seconds, times=times[order], model_index=index[order])


def _draw(rate: float, seconds: float, seed: list[int]) -> NDArray[np.float64]:
    """Arrival times of one model: sums of exponential gaps."""
    random = np.random.default_rng(seed)
    expected = rate * seconds
    chunk = int(expected + _SPARE_DEVIATIONS * np.sqrt(expected)) + 1
    times = np.cumsum(random.exponential(1 / rate, chunk))
    while times[-1] < seconds:
        times = np.append(times, times[-1] + np.cumsum(random.exponential(1 / rate, chunk)))
    return times[times < seconds]
