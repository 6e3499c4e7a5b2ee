"""Run time by batch size: from a profile, from the runs themselves, or both."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from statistics import median

_REMEMBERED = 15
_BELIEVED_SECONDS = 5.0
_RATIOS = 100
"""Runs that say how far from its expectation a run may be."""
_DRIFT_RUNS = 5
_QUANTILE = 0.95
_MOST_MARGIN = 2.0


class BatchLatency:
    """The median of the last runs of each batch size, and what follows for other sizes.

    A median shrugs off the single slow run. A belief that no run has confirmed for some seconds
    is none: otherwise a model that was slow once would have all its tight requests refused and
    never be seen to be fast again.
    """

    def __init__(
        self,
        profile: Mapping[int, float] | None = None,
        *,
        believed_seconds: float = _BELIEVED_SECONDS,
    ) -> None:
        """Begin.

        Args:
            profile: Seconds by batch size, as measured before. Only expectations use it, until
                runs tell otherwise: nothing is refused because of it.
            believed_seconds: How long a run is believed by what refuses requests.
        """
        self._believed_seconds = believed_seconds
        self._runs: dict[int, deque[float]] = {}
        self._beliefs: dict[int, tuple[float, float]] = {}
        """Median and time of the last run, by size."""
        self._table: dict[int, float] = {}
        self._sizes: list[int] = []
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._drift = 1.0
        self.margin = 1.0
        """By what factor one run in twenty exceeds its expectation: 1 to 2."""
        self.know(profile or {})

    def know(self, profile: Mapping[int, float]) -> None:
        """Take in what was measured before, of the sizes that have not run yet."""
        self._table |= {rows: s for rows, s in profile.items() if rows not in self._runs}
        self._sizes = sorted(self._table)

    def observe(self, rows: int, seconds: float, now: float) -> None:
        """Record that a batch of ``rows`` took ``seconds`` and ended at ``now``."""
        if before := self._table.get(rows):  # of a new size, the guess was off, not the run
            self._ratios.append(seconds / before)
            self._drift = median(list(self._ratios)[-_DRIFT_RUNS:])
            self.margin = self._margin()  # now: it is asked for more often than runs end
        runs = self._runs.setdefault(rows, deque(maxlen=_REMEMBERED))
        runs.append(seconds)
        self._beliefs[rows] = (median(runs), now)
        if rows not in self._table:
            self._sizes.insert(bisect_left(self._sizes, rows), rows)
        self._table[rows] = self._beliefs[rows][0]

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

    def expect(self, rows: int) -> float | None:
        """Seconds that a batch of ``rows`` will most likely take, None if nothing is known.

        Between known sizes it lies on the line between them, beyond the largest on the line
        from nothing through that one: there it is too high rather than too low, so that larger
        batches are tried step by step. If all sizes have become slower or faster at once, the
        last runs say by how much.
        """
        seconds = self._from_table(rows)
        return None if seconds is None else seconds * self._drift

    def _margin(self) -> float:
        if not self._drift:
            return 1.0
        ratios = sorted(self._ratios)
        return min(_MOST_MARGIN, max(1.0, ratios[int(_QUANTILE * (len(ratios) - 1))] / self._drift))

    def _from_table(self, rows: int) -> float | None:
        sizes = self._sizes
        if not sizes:
            return None
        place = bisect_left(sizes, rows)
        if place == len(sizes):
            return self._table[sizes[-1]] * rows / sizes[-1]
        above = self._table[sizes[place]]
        if sizes[place] == rows or place == 0:
            return above  # fewer rows than the smallest take no longer
        below, size = self._table[sizes[place - 1]], sizes[place - 1]
        return below + (above - below) * (rows - size) / (sizes[place] - size)
