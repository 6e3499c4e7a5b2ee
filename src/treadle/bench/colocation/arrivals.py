"""When requests arrive: one endless Poisson process, drawn in blocks of a second.

What a block holds depends on the seed, its number and the rate alone. So every mode meets the
same requests, in however many slices it is measured, and blocks can be compared in pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_SECONDS = 1.0


def draw_arrivals(rate: float, seed: int, first: int, count: int) -> NDArray[np.float64]:
    """Arrival times in ``count`` blocks from the block number ``first`` on.

    Args:
        rate: Requests per second, above 0.
        seed: Of the random numbers, at least 0.
        first: Number of the first block, at least 0.
        count: How many blocks, at least 0.

    Returns:
        Seconds from the start of block ``first``, ascending; shape ``[arrivals]``.
    """
    drawn = [_draw(rate, seed, first + number) + number * BLOCK_SECONDS for number in range(count)]
    return np.concatenate([np.empty(0), *drawn])


def count_arrivals(rate: float, seed: int, first: int, count: int) -> int:
    """How many requests arrive in these blocks."""
    return len(draw_arrivals(rate, seed, first, count))


def blocks_for(requests: int, rate: float, seed: int, first: int, most: int) -> int:
    """Fewest blocks from ``first`` on that hold ``requests``: at least 1, at most ``most``."""
    total = 0
    for count in range(1, most + 1):
        total += len(_draw(rate, seed, first + count - 1))
        if total >= requests:
            return count
    return max(most, 1)


def _draw(rate: float, seed: int, block: int) -> NDArray[np.float64]:
    """A Poisson process in one block: a Poisson count of uniform times."""
    random = np.random.default_rng([seed, block])
    count = int(random.poisson(rate * BLOCK_SECONDS))
    return np.sort(random.uniform(0.0, BLOCK_SECONDS, count))
