"""How often each source is read: never more often than it changes, all within a budget."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

BUDGET = 0.01
"""Of a core, for all reads together."""
GPM_BUDGET = 0.02
"""The same where the GPU's performance monitor is read: one read takes over a millisecond."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_SHARPEST = 1e-3


def intervals(refresh: Sequence[float], cost: Sequence[float], budget: float) -> list[float]:
    """Seconds between reads of each source.

    A source is read each time that it changes, if the budget allows that. If not, intervals grow
    with the square root of what a read costs: that loses the fewest readings in proportion to the
    time that is saved (Lagrange's condition for the least sum of intervals within a budget).

    Args:
        refresh: How often each changes, seconds.
        cost: What a read of each takes, seconds.
        budget: The most that all may take, in seconds for each second.
    """
    fastest = [max(seconds, _SHARPEST) for seconds in refresh]

    def stretched(factor: float) -> list[float]:
        return [max(f, factor * math.sqrt(c)) for f, c in zip(fastest, cost, strict=True)]

    def spent(pace: Sequence[float]) -> float:
        return sum(c / seconds for c, seconds in zip(cost, pace, strict=True))

    if spent(fastest) <= budget:
        return fastest
    low, high = 0.0, 1.0
    while spent(stretched(high)) > budget:
        low, high = high, high * 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(stretched(middle)) > budget else (low, middle)
    return stretched(high)


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

    def leave(self, gone: set[int]) -> None:
        """Nobody of these has a turn any more."""
        self._due = [(due, i) for due, i in self._due if i not in gone]
        heapq.heapify(self._due)
