"""Percentiles over native with bootstrap intervals; training kept; geometric means.

Requests that follow each other are not independent: they wait in one queue. So whole seconds are
drawn and not single requests, and the same seconds for both sides of a ratio, since both met the
same requests in them (a paired block bootstrap; Kunsch 1989, Efron and Tibshirani 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and its interval, both None where they cannot be told."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests of a cell."""

    block: NDArray[np.intp]
    """Number of the block in which each arrived; shape ``[requests]``."""
    seconds: Floats
    """From when each was due to its end; shape ``[requests]``."""

    def within(self, blocks: int) -> Requests:
        """Those of the first so many blocks."""
        kept = self.block < blocks
        return Requests(block=self.block[kept], seconds=self.seconds[kept])


class WeightedPercentile:
    """A percentile of the same requests, over and over with other weights of their blocks."""

    def __init__(self, requests: Requests, percent: float) -> None:
        order = np.argsort(requests.seconds, kind="stable")
        self._seconds = requests.seconds[order]
        self._block = requests.block[order]
        self._fraction = percent / 100

    def __call__(self, weights: Counts) -> float:
        """The percentile, where the requests of block ``b`` count ``weights[b]`` times."""
        reached = np.cumsum(weights[self._block])
        if not len(reached) or not reached[-1]:
            return float("nan")
        place = np.searchsorted(reached, self._fraction * reached[-1], side="left")
        return float(self._seconds[min(place, len(reached) - 1)])


def percentile_ratio(
    measured: Requests, native: Requests, blocks: int, percent: float, seed: int = 0
) -> Estimate | None:
    """How many times a percentile is that of the native run, over the blocks that both have.

    Args:
        measured: Requests of the mode.
        native: Requests of the server alone.
        blocks: How many blocks, from the first, both have; None comes back for 0.
        percent: Which percentile, 0 to 100.
        seed: Of the bootstrap.
    """
    if blocks < 1:
        return None
    over = WeightedPercentile(measured.within(blocks), percent)
    under = WeightedPercentile(native.within(blocks), percent)
    return bootstrap(lambda weights: over(weights) / under(weights), blocks, seed)


def percentile(requests: Requests, blocks: int, percent: float, seed: int = 0) -> Estimate | None:
    """A percentile, in seconds, of the first ``blocks`` blocks."""
    return bootstrap(WeightedPercentile(requests.within(blocks), percent), blocks, seed)


def bootstrap(statistic: Callable[[Counts], float], blocks: int, seed: int = 0) -> Estimate | None:
    """A statistic of weighted blocks and its interval from resampled ones.

    Args:
        statistic: Takes how often each block counts.
        blocks: How many there are.
        seed: Of the resampling: the same seed gives the same interval.

    Returns:
        None where the statistic cannot be told.
    """
    if blocks < 1:
        return None
    value = statistic(np.ones(blocks, np.int64))
    if not np.isfinite(value):
        return None
    random = np.random.default_rng(seed)
    drawn = random.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES)
    resampled = np.array([statistic(weights) for weights in drawn])
    resampled = resampled[np.isfinite(resampled)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value=value, low=float(low), high=float(high))


def steps_by_block(finished: Floats, blocks: int, block_seconds: float) -> Floats:
    """Training steps done in each block, parts of steps counted as such.

    Args:
        finished: When each step was done, seconds from the start of the first block, ascending.
            Some lie before the first block or after the last.
        blocks: How many.
        block_seconds: Length of each.

    Returns:
        Shape ``[blocks]``. Where no step ends after a block, its last unfinished step is left out.
    """
    edges = np.arange(blocks + 1) * block_seconds
    if len(finished) == 0:
        return np.zeros(blocks)
    done = np.interp(edges, finished, np.arange(1, len(finished) + 1, dtype=np.float64))
    return np.diff(done)


def rate_ratio(measured: Floats, native: Floats, scale: float, seed: int = 0) -> Estimate | None:
    """Mean of one sequence over the mean of another, times ``scale``, with its interval.

    The two are resampled independently: they are not of the same seconds.
    """
    if not len(measured) or not len(native) or not native.mean():
        return None
    random = np.random.default_rng(seed)
    tops, bottoms = (
        random.choice(values, (RESAMPLES, len(values))).mean(1) for values in (measured, native)
    )
    tail = (1 - CONFIDENCE) / 2
    ratios = scale * tops[bottoms > 0] / bottoms[bottoms > 0]
    low, high = np.quantile(ratios, [tail, 1 - tail])
    value = float(scale * measured.mean() / native.mean())
    return Estimate(value=value, low=float(low), high=float(high))


def geometric_mean(values: Sequence[float]) -> float | None:
    """None for no values; all must be above 0."""
    return float(np.exp(np.mean(np.log(values)))) if values else None
