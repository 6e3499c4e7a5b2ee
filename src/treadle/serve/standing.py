"""How a model stands: whether it keeps its objective, and what it turned away."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

_REMEMBERED = 4096
_WINDOW_SECONDS = 60.0
_BATCHES = 64


class Standing:
    """The last requests of one model, against what it promises. One thread only."""

    def __init__(self, p99_seconds: float | None) -> None:
        self.p99_seconds = p99_seconds
        self._recent: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        """When each ended, and how long it took; infinity if it was not answered."""
        self._rows: deque[int] = deque(maxlen=_BATCHES)
        self._refused: Counter[str] = Counter()
        self._why: dict[str, str] = {}

    def answered(self, seconds: float, now: float) -> None:
        """Count a request that was answered after so many seconds."""
        self._recent.append((now, seconds))

    def missed(self, outcome: str, why: str, now: float) -> None:
        """Count one that was not answered, though it might have been: that is a miss."""
        self._refused[outcome] += 1
        self._why[outcome] = why
        self._recent.append((now, math.inf))

    def ran(self, rows: int) -> None:
        """Count a batch."""
        self._rows.append(rows)

    def as_json(self, now: float) -> dict[str, Any]:
        """Of the last minute, or of the last requests if those were more.

        ``p99_seconds`` and ``within`` (the part of requests that kept the objective) are None
        where there is nothing to tell them of, ``p99_seconds`` also where one in a hundred was
        not answered at all.
        """
        taken = sorted(s for at, s in self._recent if at > now - _WINDOW_SECONDS)
        p99 = taken[int(0.99 * (len(taken) - 1))] if taken else None
        within = None
        if taken and self.p99_seconds is not None:
            within = sum(s <= self.p99_seconds for s in taken) / len(taken)
        return {
            "objective_seconds": self.p99_seconds,
            "p99_seconds": None if p99 == math.inf else p99,
            "within": within,
            "requests": len(taken),
            "batch_rows": sum(self._rows) / len(self._rows) if self._rows else None,
            "refused": {
                outcome: {"count": count, "last": self._why[outcome]}
                for outcome, count in self._refused.items()
            },
        }
