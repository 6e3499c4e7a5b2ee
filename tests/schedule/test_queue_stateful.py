"""The queue against a list that is searched from end to end, step by random step."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from treadle.schedule import Batch, Entry, Fifo, FixedBatch, HighestPriorityFirst, RequestQueue
from treadle.types import Priority

MODELS = ("x", "y", "z")
AGE_LIMIT = 2.0
DUTY = 0.5

LATER = st.sampled_from([0.0, 0.25, 1.0, 3.0, 6.0])
ROWS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "batch_key": st.sampled_from("kl"),
        "rows": st.integers(1, 3),
        "priority": st.sampled_from(Priority),
        "due": st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 50.0, math.inf]),
        "patience": st.sampled_from([3.0, 20.0, math.inf]),
    }
)


class QueueMachine(RuleBasedStateMachine):
    """Times are multiples of 1/4, so that sums are exact."""

    entries = Bundle("entries")

    @initialize(
        fifo=st.sampled_from([False, False, True]),
        max_rows=st.tuples(*[st.integers(1, 5)] * 3),
        delays=st.tuples(*[st.sampled_from([0.0, 2.0, 5.0])] * 3),
        ages=st.sampled_from([True, True, False]),
    )
    def start(
        self,
        fifo: bool,
        max_rows: tuple[int, int, int],
        delays: tuple[float, float, float],
        ages: bool,
    ) -> None:
        self.policy = Fifo() if fifo else HighestPriorityFirst()
        self.max_rows = dict(zip(MODELS, max_rows, strict=True))
        self.delays = dict(zip(MODELS, delays, strict=True))
        self.age_limit = AGE_LIMIT if ages else math.inf
        self.queue = RequestQueue(
            self.policy,
            {m: FixedBatch(self.max_rows[m], self.delays[m]) for m in MODELS},
            age_limit_seconds=self.age_limit,
            aged_duty=DUTY,
        )
        self.now = 0.0
        self.live: list[Entry] = []  # in order of their pushes
        self.next_aged_turn = -math.inf
        self.aged_runs = False

    @rule(target=entries, rows=st.lists(ROWS, min_size=2, max_size=8), later=LATER)
    def push(self, rows: list[dict[str, Any]], later: float) -> object:
        self.now += later
        pushed = []
        for row in rows:
            due, patience = row.pop("due"), row.pop("patience")
            entry = Entry(
                **row, arrived=self.now, due=self.now + due, latest_start=self.now + patience
            )
            self.queue.push(entry)
            pushed.append(entry)
        self.live += pushed
        return multiple(*pushed)

    @rule(entry=entries)
    def remove(self, entry: Entry) -> None:
        waits = any(entry is other for other in self.live)
        assert self.queue.remove(entry) is waits
        self._forget([entry])

    @rule(target=entries, entry=consumes(entries))
    def run_again_by_itself(self, entry: Entry) -> object:
        """As after a batch that failed, with a key that no other has."""
        if entry.waiting:
            return multiple(entry)
        entry.batch_key = object()
        self.queue.push(entry)
        self.live.append(entry)
        return entry

    @rule()
    def expire(self) -> None:
        expired = self.queue.expire(self.now)
        due = [entry for entry in self.live if entry.latest_start < self.now]
        # At the very moment of the latest start both are right.
        assert {*map(id, due)} <= {*map(id, expired)}
        assert all(entry.latest_start <= self.now for entry in expired)
        assert [e.latest_start for e in expired] == sorted(e.latest_start for e in expired)
        self._forget(expired)

    @rule(
        ready=st.sampled_from([{"x", "y", "z"}, {"x", "y"}, {"y", "z"}, {"x", "z"}, {"z"}, set()]),
        room=st.sampled_from([3, 2, 1]),
        later=LATER,
    )
    def take_all(self, ready: set[str], room: int, later: float) -> None:
        """``room``: only requests of so many rows fit."""
        self.now += later
        while self._take(ready, room):
            pass

    @precondition(lambda self: self.aged_runs)
    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0]))
    def aged_batch_ends(self, seconds: float) -> None:
        self.queue.aged_finished(self.now, seconds)
        self.aged_runs, self.next_aged_turn = False, self.now + seconds

    @invariant()
    def the_books_are_right(self) -> None:
        self.queue.check_integrity()
        for model in MODELS:
            here = [entry for entry in self.live if entry.model == model]
            assert self.queue.waiting(model) == len(here)
            for priority in Priority:
                count = sum(entry.priority is priority for entry in here)
                assert self.queue.depths().get((model, priority), 0) == count
        assert all(entry.waiting for entry in self.live)

    @rule()
    def all_that_waits_comes_out_each_once(self) -> None:
        self.now += 1000
        while batch := self._take_any():
            assert all(any(e is other for other in self.live) for e in batch.entries)
            self._start(batch)
        assert self.live == []
        assert self.queue.expire(math.inf) == []
        self.queue.check_integrity()

    def _take(self, ready: set[str], room: int) -> bool:
        heads = self._heads(ready)
        batch = self.queue.take(
            self.now, ready=ready.__contains__, fits=lambda head: head.rows <= room
        )
        if batch is None:
            assert not heads or any(head.rows > room for head in heads)
            # What has no room holds back all behind it. Whose turn is first changes with time, but
            # room comes only when something ends, and then the queue is asked again.
            if not heads:
                self._check_nothing_happens_before_the_next_event(ready, room)
            return False
        head = batch.entries[0]
        assert head.rows <= room
        assert any(head is other for other in heads)
        assert [*map(id, batch.entries)] == [*map(id, self._company(head))]
        assert batch.model == head.model
        assert batch.aged == any(head is old for old in self._old(ready))
        self._start(batch)
        return True

    def _start(self, batch: Batch) -> None:
        if batch.aged:
            self.aged_runs, self.next_aged_turn = True, math.inf
        self._forget(batch.entries)

    def _take_any(self) -> Batch | None:
        return self.queue.take(self.now, ready=lambda _: True, fits=lambda _: True)

    def _forget(self, entries: list[Entry] | tuple[Entry, ...]) -> None:
        gone = {*map(id, entries)}
        self.live = [entry for entry in self.live if id(entry) not in gone]
        assert not any(entry.waiting for entry in entries)

    def _heads(self, ready: set[str]) -> list[Entry]:
        """The requests that may be first in the next batch: more than one where keys are equal."""
        if old := self._old(ready):
            return old
        ranks = sorted({self.policy.rank(entry) for entry in self.live})
        for rank in ranks:
            firsts = [first for m in MODELS if m in ready and (first := self._first(rank, m))]
            firsts = [first for first in firsts if not self._waits_for_company(first)]
            if firsts:
                order = min(map(self._order, firsts))
                return [first for first in firsts if self._order(first) == order]
        return []

    def _order(self, first: Entry) -> tuple[float, float]:
        """Among the first of each model."""
        return self.policy.turn(first, self.now), self.policy.key(first)

    def _first(self, rank: int, model: str) -> Entry | None:
        line = [e for e in self.live if self.policy.rank(e) == rank and e.model == model]
        return min(line, key=self.policy.key, default=None)

    def _company(self, head: Entry) -> list[Entry]:
        """The whole batch that starts with ``head``."""
        batch, rows = [head], head.rows
        for entry in sorted(self._lane(head), key=self.policy.key):
            if entry is head:
                continue
            if rows + entry.rows > self.max_rows[head.model]:
                break
            batch.append(entry)
            rows += entry.rows
        return batch

    def _lane(self, head: Entry) -> list[Entry]:
        rank = self.policy.rank(head)
        return [
            entry
            for entry in self.live
            if (entry.model, entry.batch_key) == (head.model, head.batch_key)
            and self.policy.rank(entry) == rank
        ]

    def _waits_for_company(self, head: Entry) -> bool:
        full = sum(e.rows for e in self._lane(head)) >= self.max_rows[head.model]
        return not full and self.now < head.arrived + self.delays[head.model]

    def _old(self, ready: set[str]) -> list[Entry]:
        """Those of which one may start out of turn: more than one where they came together."""
        lower = [e for e in self.live if self.policy.rank(e) > 0 and e.model in ready]
        oldest = min((entry.arrived for entry in lower), default=math.inf)
        if self.now < max(oldest + self.age_limit, self.next_aged_turn):
            return []
        return [entry for entry in lower if entry.arrived == oldest]

    def _check_nothing_happens_before_the_next_event(self, ready: set[str], room: int) -> None:
        event = self.queue.next_event(self.now)
        if event <= self.now or any(e.latest_start <= self.now for e in self.live):
            return
        before = self.now + min(event - self.now, 100.0) * 0.999
        for time in (self.now, (self.now + before) / 2, before):
            assert self.queue.expire(time) == []
            assert not self.queue.take(
                time, ready=ready.__contains__, fits=lambda head: head.rows <= room
            )


TestQueue = QueueMachine.TestCase
