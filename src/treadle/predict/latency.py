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
        self._beliefs: dict[int, tuple[float, float]] = {}
        """Median and time of the last run, by size."""

    def observe(self, rows: int, seconds: float, now: float) -> None:
        """Record that a batch of ``rows`` took ``seconds`` and ended at ``now``."""
        runs = self._runs.setdefault(rows, deque(maxlen=_REMEMBERED))
        runs.append(seconds)
        self._beliefs[rows] = (median(runs), now)

    def estimate(self, rows: int, now: float) -> float | None:
        """Seconds that a batch of ``rows`` will take at least, None if that is not known.

        A size not seen lately is judged by the nearest smaller one: too low rather than too
        high, since requests are refused on this figure.
        """
        since = now - self._believed_seconds
        own = self._beliefs.get(rows)
        if own is not None and own[1] >= since:
            return own[0]
        fresh = [size for size, (_, last) in self._beliefs.items() if size < rows and last >= since]
        return self._beliefs[max(fresh)][0] if fresh else None
