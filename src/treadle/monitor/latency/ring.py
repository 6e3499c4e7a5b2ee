"""Latencies of requests that are answered in this process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treadle.types import NEAR_FRACTION, LatencyKind, LatencyWindow


def window_of(
    latencies: NDArray[np.float64], objective_seconds: float, *, at: float, window_seconds: float
) -> LatencyWindow:
    """What these latencies, in seconds, come to.

    The P99 is the nearest rank: a latency that was. Of few requests it is the longest.
    """
    count = len(latencies)
    over = int(np.count_nonzero(latencies > objective_seconds))
    near = int(np.count_nonzero(latencies > NEAR_FRACTION * objective_seconds))
    p99 = float(np.quantile(latencies, 0.99, method="higher")) if count else None
    return LatencyWindow(
        at=at,
        window_seconds=window_seconds,
        kind=LatencyKind.SAMPLES,
        count=count,
        over=(over, over),
        near=(near, near),
        p99_seconds=p99,
        mean_seconds=float(latencies.mean()) if count else None,
        reason="" if count else "no request in this time",
    )


class LatencyRing:
    """The last so many latencies. To put one in takes no memory and no lock.

    One thread puts them in, another may look.
    """

    def __init__(self, size: int = 8192) -> None:
        if size < 1:
            raise ValueError(f"a ring has room for one latency or more, not {size}")
        self._latencies = np.zeros(size)
        self._at = np.full(size, -np.inf)
        self._next = 0
        self._forgotten_at = -np.inf

    def put(self, latency_seconds: float, at: float) -> None:
        """A request was answered at ``at`` (monotonic seconds; never earlier than the last)."""
        index = self._next
        self._forgotten_at = max(self._forgotten_at, float(self._at[index]))
        self._latencies[index], self._at[index] = latency_seconds, at
        self._next = (index + 1) % len(self._at)

    def window(self, after: float, until: float, objective_seconds: float) -> LatencyWindow:
        """The requests answered after one moment and until another.

        If more came than the ring holds, the window begins where it still knows all of them.
        """
        start = min(until, max(after, float(self._forgotten_at)))
        chosen = self._latencies[(self._at > start) & (self._at <= until)]
        return window_of(chosen, objective_seconds, at=until, window_seconds=until - start)
