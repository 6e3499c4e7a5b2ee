"""The waiting line of one device: all models, all classes, one order."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import count

from treadle.schedule.batching import BatchRule, Others
from treadle.schedule.entry import Entry
from treadle.schedule.lazyheap import LazyHeap
from treadle.schedule.policy import QueuePolicy
from treadle.types import Priority


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one model that run together, most urgent first."""

    model: str
    entries: tuple[Entry, ...]
    aged: bool
    """It starts out of turn, because its first request waited past the age limit."""


class _Lane:
    """Requests of one rank and model that may share a batch."""

    __slots__ = ("heap", "rows")

    def __init__(self) -> None:
        self.heap = LazyHeap()
        self.rows = 0


class _Line:
    """All requests of one rank and model, in order, and by what may share a batch."""

    __slots__ = ("heap", "lanes")

    def __init__(self) -> None:
        self.heap = LazyHeap()
        self.lanes: dict[Hashable, _Lane] = {}


class RequestQueue:
    """Orders waiting requests by a policy and hands out batches.

    Nothing starves: a request of a lower rank that waited ``age_limit_seconds`` is next,
    whatever else waits. So that a crowd of old requests does not turn the order upside down,
    such turns take at most ``aged_duty`` of the time (but always one at a time).
    """

    def __init__(
        self,
        policy: QueuePolicy,
        rules: Mapping[str, BatchRule],
        *,
        age_limit_seconds: float = math.inf,
        aged_duty: float = 0.1,
    ) -> None:
        self._policy = policy
        self._rules = rules
        self._age_limit_seconds = age_limit_seconds
        self._aged_duty = aged_duty
        self._lines: dict[int, dict[str, _Line]] = {}
        self._by_arrival: dict[str, LazyHeap] = {}
        self._by_latest_start = LazyHeap()
        self._waiting: dict[str, int] = {}
        self._depths: dict[tuple[str, Priority], int] = {}
        self._next_aged_turn = -math.inf
        self._stays = count(1)

    def push(self, entry: Entry) -> None:
        """Let a request wait."""
        entry.waiting = next(self._stays)
        rank, key = self._policy.rank(entry), self._policy.key(entry)
        line = self._lines.setdefault(rank, {}).setdefault(entry.model, _Line())
        line.heap.push(key, entry)
        lane = line.lanes.setdefault(entry.batch_key, _Lane())
        lane.heap.push(key, entry)
        lane.rows += entry.rows
        self._waiting[entry.model] = self._waiting.get(entry.model, 0) + 1
        place = (entry.model, entry.priority)
        self._depths[place] = self._depths.get(place, 0) + 1
        if rank > 0 and self._age_limit_seconds != math.inf:
            self._by_arrival.setdefault(entry.model, LazyHeap()).push(entry.arrived, entry)
        if entry.latest_start != math.inf:
            self._by_latest_start.push(entry.latest_start, entry)

    def remove(self, entry: Entry) -> bool:
        """Take a request out; False if it is not waiting any more."""
        if not entry.waiting:
            return False
        entry.waiting = 0
        self._waiting[entry.model] -= 1
        self._depths[entry.model, entry.priority] -= 1
        line = self._lines[self._policy.rank(entry)][entry.model]
        lane = line.lanes[entry.batch_key]
        lane.rows -= entry.rows
        if lane.rows == 0:
            del line.lanes[entry.batch_key]
        return True

    def waiting(self, model: str) -> int:
        """How many requests wait for ``model``."""
        return self._waiting.get(model, 0)

    def depths(self) -> Mapping[tuple[str, Priority], int]:
        """How many requests wait, by model and class, of those that ever had any."""
        return self._depths

    def expire(self, now: float) -> list[Entry]:
        """Take out every request that could not meet its deadline if it started now."""
        expired = []
        while (first := self._by_latest_start.peek()) and first[0] <= now:
            self.remove(first[1])
            expired.append(first[1])
        return expired

    def take(
        self,
        now: float,
        *,
        ready: Callable[[str], bool],
        fits: Callable[[Entry], bool],
    ) -> Batch | None:
        """The batch to start now, taken out of the queue; None if none should.

        Args:
            now: The time, in seconds.
            ready: Whether a replica of this model could start a batch at once.
            fits: Whether the device has room for the batch that this request heads. If it has
                none for the first in order, nothing behind it may start either.
        """
        old = self._aged(now, ready)
        if old is not None:
            lane = self._lane(old)
            rows = self._rules[old.model].choose(old, lane.rows, now).max_rows
            return self._fill(old, rows, aged=True) if fits(old) else None
        for rank in sorted(self._lines):
            if (first := self._first(rank, now, ready)) is not None:
                return self._fill(*first, aged=False) if fits(first[0]) else None
        return None

    def aged_finished(self, now: float, seconds: float) -> None:
        """Say that a batch taken out of turn has ended after running for ``seconds``."""
        self._next_aged_turn = now + seconds * (1 / self._aged_duty - 1)

    def next_event(self, now: float) -> float:
        """When ``take`` or ``expire`` may next answer differently without a push; inf if never."""
        times = [math.inf]
        if first := self._by_latest_start.peek():
            times.append(first[0])
        times += [
            max(first[0] + self._age_limit_seconds, self._next_aged_turn)
            for heap in self._by_arrival.values()
            if (first := heap.peek())
        ]
        for lines in self._lines.values():
            for model, line in lines.items():
                if head := line.heap.peek():
                    lane = line.lanes[head[1].batch_key]
                    choice = self._rules[model].choose(head[1], lane.rows, now)
                    if choice.not_before > now:
                        times.append(choice.not_before)
        # What could have happened already waits for something else, and must not hide the rest.
        return min(time for time in times if time > now)

    def check_integrity(self) -> None:
        """Compare the counters with what really waits.

        Raises:
            AssertionError: If the books are wrong.
        """
        for lines in self._lines.values():
            for line in lines.values():
                assert all(lane.rows > 0 for lane in line.lanes.values())
                assert bool(line.lanes) == (line.heap.peek() is not None)
        anything = any(line.lanes for lines in self._lines.values() for line in lines.values())
        assert all(n >= 0 for n in self._waiting.values())
        assert anything == any(self._waiting.values())

    def _aged(self, now: float, ready: Callable[[str], bool]) -> Entry | None:
        """The oldest request past the age limit whose model is ready, if it is time for one."""
        if now < self._next_aged_turn:
            return None
        oldest: tuple[float, Entry] | None = None
        for model, heap in self._by_arrival.items():
            first = heap.peek()
            if first is None or now < first[0] + self._age_limit_seconds or not ready(model):
                continue
            if oldest is None or first[0] < oldest[0]:
                oldest = first
        return oldest[1] if oldest else None

    def _first(
        self, rank: int, now: float, ready: Callable[[str], bool]
    ) -> tuple[Entry, int] | None:
        """The request of a rank that is next, and the rows that its batch may hold."""
        while True:
            heads = sorted(
                (self._policy.turn(first[1], now), first[0], model, first[1])
                for model, line in self._lines[rank].items()
                if (first := line.heap.peek()) and ready(model)
            )
            for _, _, model, head in heads:
                others = self._others(rank, model, now)
                choice = self._rules[model].choose(head, self._lane(head).rows, now, others)
                if choice.late:
                    self._put_behind(head)
                    break
                if choice.not_before <= now:
                    return head, choice.max_rows
            else:
                return None

    def _others(self, rank: int, model: str, now: float) -> Others:
        """What the other models of a rank need of the device."""
        free_by, load = math.inf, 0.0
        for other, line in self._lines[rank].items():
            if other != model:
                head = first[1] if (first := line.heap.peek()) else None
                rows = self._lane(head).rows if head else 0
                free_by = min(free_by, self._rules[other].latest_start(head, rows, now))
                load += self._rules[other].load(now)
        return Others(free_by, load)

    def _put_behind(self, entry: Entry) -> None:
        """Let one wait that is late already, behind all that are not."""
        self.remove(entry)
        entry.late = True
        self.push(entry)

    def _lane(self, entry: Entry) -> _Lane:
        return self._lines[self._policy.rank(entry)][entry.model].lanes[entry.batch_key]

    def _fill(self, head: Entry, max_rows: int, *, aged: bool) -> Batch:
        lane = self._lane(head)
        self.remove(head)
        entries, rows = [head], head.rows
        while (first := lane.heap.peek()) and rows + first[1].rows <= max_rows:
            self.remove(first[1])
            entries.append(first[1])
            rows += first[1].rows
        if aged:
            self._next_aged_turn = math.inf  # until this one has finished
        return Batch(head.model, tuple(entries), aged)
