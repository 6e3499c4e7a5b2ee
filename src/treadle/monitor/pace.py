"""How often each source is read: never more often than it changes, all within a budget."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

BUDGET = 0.01
"""Of a core, for all that the helper does."""
GPM_BUDGET = 0.02
"""The same where the GPU's performance monitor is read."""
LEAST_SECONDS = 0.1
"""Waking up costs as much as a cheap read: what is due a little later waits for company. What
changes more often than that is sampled by the driver, and comes with its own times."""
LONGEST_SECONDS = 5.0
LONGEST_REFRESHES = 10
"""No source is read more rarely than that (the longer of both), whatever the budget: a figure that
is older says little. Eight GPUs read so rarely take less than 1% of a core."""
_GOLDEN = (math.sqrt(5) - 1) / 2

_Seconds = npt.NDArray[np.float64]


def budget_of(sources: Iterable[str]) -> float:
    """What all that the helper does may take of a core, by the names of its sources."""
    return GPM_BUDGET if any("gpm" in name for name in sources) else BUDGET


def intervals(refresh: Sequence[float], cost: Sequence[float], budget: float) -> list[float]:
    """Seconds between reads of each source.

    A source is read each time that it changes, if the budget allows that. If not, intervals grow
    with the square root of what a read costs: that loses the fewest readings in proportion to the
    time that is saved (Lagrange's condition for the least sum of intervals within a budget). Where
    even the longest are not enough, it is those.

    Args:
        refresh: How often each changes, seconds.
        cost: What a read of each takes, seconds.
        budget: The most that all may take, in seconds for each second.
    """
    fastest: _Seconds = np.maximum(refresh, LEAST_SECONDS)
    slowest: _Seconds = np.maximum(LONGEST_REFRESHES * fastest, LONGEST_SECONDS)
    costs: _Seconds = np.asarray(cost, np.float64)
    roots = np.sqrt(costs)

    def stretched(factor: float) -> _Seconds:
        pace: _Seconds = np.clip(factor * roots, fastest, slowest)
        return pace

    def spent(pace: _Seconds) -> float:
        return float((costs / pace).sum())

    if spent(fastest) <= budget:
        return [float(seconds) for seconds in fastest]
    if spent(slowest) >= budget:
        return [float(seconds) for seconds in slowest]
    low, high = 0.0, 1.0
    while spent(stretched(high)) > budget:
        low, high = high, high * 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(stretched(middle)) > budget else (low, middle)
    return [float(seconds) for seconds in stretched(high)]


class Turns:
    """Whose turn it is. First turns are spread over each one's interval, so that none bunch."""

    def __init__(self, pace: Sequence[float], now: float) -> None:
        self._pace = list(pace)
        self._due = [(now, i) for i in range(len(self._pace))]
        # All are read once at once, so that nothing is long unknown; then the spread begins.
        self._first = set(range(len(self._pace)))
        heapq.heapify(self._due)

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_due(self) -> float | None:
        """When somebody's turn comes; None if there is nobody."""
        return self._due[0][0] if self._due else None

    def take(self, now: float) -> int | None:
        """Take the one whose turn it is, and give it its next; None if nobody's has come.

        Turns that were missed are left out: nobody reads twice in a row to make up for them.
        """
        if not self._due or self._due[0][0] > now:
            return None
        due, index = self._due[0]
        seconds = self._pace[index]
        if index in self._first:
            self._first.discard(index)
            following = now + seconds * (0.5 + (index * _GOLDEN) % 1)
        else:
            following = due + seconds * (math.floor((now - due) / seconds) + 1)
        heapq.heapreplace(self._due, (following, index))
        return index

    def repace(self, pace: Sequence[float], now: float) -> None:
        """Go on at another pace; nobody waits longer than its new interval."""
        self._pace = list(pace)
        self._due = [(min(due, now + self._pace[i]), i) for due, i in self._due]
        heapq.heapify(self._due)

    def leave(self, gone: set[int]) -> None:
        """Nobody of these has a turn any more."""
        self._due = [(due, i) for due, i in self._due if i not in gone]
        heapq.heapify(self._due)
