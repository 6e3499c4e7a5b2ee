"""How often each objective was missed, and who ran then."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from treadle.types import LatencyWindow

_NEIGHBOURS = 64
_REMEMBERED_SECONDS = 30.0
OTHERS = "(others)"


@dataclass(slots=True)
class _Count:
    requests: int = 0
    over: int = 0
    beside: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """Of one task, since it came."""

    requests: int
    over: int
    """Requests that surely took longer than the objective."""
    beside: Mapping[str, int]
    """Of those, how many while a neighbour ran: one request may count for several."""

    @property
    def per_thousand(self) -> float | None:
        return 1000 * self.over / self.requests if self.requests else None


class MissBook:
    """Counts for every task with an objective."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._ran: deque[tuple[float, tuple[str, ...]]] = deque()

    def saw(self, neighbours: tuple[str, ...] | None, now: float) -> None:
        """Who ran since the last step."""
        self._ran.append((now, neighbours or ()))
        while self._ran[0][0] <= now - _REMEMBERED_SECONDS:
            self._ran.popleft()

    def add(self, task: str, window: LatencyWindow) -> None:
        """Count a window, which was not counted before."""
        count = self._counts.setdefault(task, _Count())
        count.requests += window.count or 0
        over = window.over[0] if window.over is not None else 0
        count.over += over
        if not over:
            return
        for name in dict.fromkeys(
            name for at, names in self._ran if at > window.start for name in names
        ):
            known = name in count.beside or len(count.beside) < _NEIGHBOURS
            key = name if known else OTHERS
            count.beside[key] = count.beside.get(key, 0) + over

    def keep(self, tasks: frozenset[str]) -> None:
        """Forget the tasks that have gone."""
        for task in self._counts.keys() - tasks:
            del self._counts[task]

    def of(self, task: str) -> Misses:
        count = self._counts.get(task, _Count())
        return Misses(
            requests=count.requests,
            over=count.over,
            beside=MappingProxyType(dict(count.beside)),
        )
