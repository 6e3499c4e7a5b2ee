"""Run time by batch size, learned while serving."""

from __future__ import annotations

from collections import deque
from statistics import median

_REMEMBERED = 15
_BELIEVED_SECONDS = 5.0


class BatchLatency:
    """The median of the last runs of each batch size.

    A median shrugs off the single slow run. A belief that no run has confirmed for some seconds
    is none: otherwise a model that was slow once would have all its tight requests refused and
    never be seen to be fast again.
    """

    def __init__(self, believed_seconds: float = _BELIEVED_SECONDS) -> None:
        self._believed_seconds = believed_seconds
        self._runs: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._last = float("-inf")

    def observe(self, rows: int, seconds: float, now: float) -> None:
        """Record that a batch of ``rows`` took ``seconds`` and ended at ``now``."""
        runs = self._runs.setdefault(rows, deque(maxlen=_REMEMBERED))
        runs.append(seconds)
        self._medians[rows] = median(runs)
        self._last = now

    def estimate(self, rows: int, now: float) -> float | None:
        """Seconds that a batch of ``rows`` will take at least, None if that is not known.

        A size never run is judged by the nearest smaller one: too low rather than too high,
        since requests are refused on this figure.
        """
        if now - self._last > self._believed_seconds:
            return None
        if rows in self._medians:
            return self._medians[rows]
        known = [size for size in self._medians if size <= rows]
        return self._medians[max(known)] if known else None
