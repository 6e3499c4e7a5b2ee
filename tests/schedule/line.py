"""Queues whose entries have names, so that a test reads as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from treadle.schedule import (
    Batch,
    BatchRule,
    Entry,
    FixedBatch,
    HighestPriorityFirst,
    QueuePolicy,
    RequestQueue,
)
from treadle.types import Priority

CRITICAL, NORMAL, BACKGROUND = Priority

IDLE_ROUNDS = 5


@dataclass(frozen=True)
class Wait:
    """One row of a table: a request that waits."""

    name: str
    priority: Priority = NORMAL
    due: float = math.inf
    arrived: float = 0.0
    model: str = "m"
    key: str = "k"
    rows: int = 1
    latest_start: float = math.inf


def anything(_: object) -> bool:
    return True


def nothing(_: object) -> bool:
    return False


class Line:
    """A queue that is filled from rows and speaks in their names."""

    def __init__(
        self,
        *waits: Wait,
        policy: QueuePolicy | None = None,
        max_rows: int = 1,
        max_delay_seconds: float = 0.0,
        rules: Mapping[str, BatchRule] | None = None,
        age_limit_seconds: float = math.inf,
        aged_duty: float = 0.1,
    ) -> None:
        rule = FixedBatch(max_rows, max_delay_seconds)
        self.queue = RequestQueue(
            policy or HighestPriorityFirst(),
            rules or dict.fromkeys(["m", *(wait.model for wait in waits)], rule),
            age_limit_seconds=age_limit_seconds,
            aged_duty=aged_duty,
        )
        self.entries: dict[str, Entry] = {}
        for wait in waits:
            self.push(wait)

    def push(self, wait: Wait) -> None:
        entry = Entry(
            model=wait.model,
            batch_key=wait.key,
            rows=wait.rows,
            priority=wait.priority,
            arrived=wait.arrived,
            due=wait.due,
            latest_start=wait.latest_start,
        )
        self.entries[wait.name] = entry
        self.queue.push(entry)
        self.queue.check_integrity()

    def remove(self, name: str) -> bool:
        removed = self.queue.remove(self.entries[name])
        self.queue.check_integrity()
        return removed

    def expire(self, now: float) -> list[str]:
        expired = [self._name(entry) for entry in self.queue.expire(now)]
        self.queue.check_integrity()
        return expired

    def take_batch(
        self,
        now: float,
        ready: Callable[[str], bool] = anything,
        fits: Callable[[Entry], bool] = anything,
    ) -> Batch | None:
        batch = self.queue.take(now, ready=ready, fits=fits)
        assert batch is None or not any(entry.waiting for entry in batch.entries)
        self.queue.check_integrity()
        return batch

    def take(
        self,
        now: float = 0.0,
        ready: Callable[[str], bool] = anything,
        fits: Callable[[Entry], bool] = anything,
    ) -> str | None:
        """The names in the batch that starts now, as ``"a b"``; ``"a b (aged)"`` out of turn."""
        batch = self.take_batch(now, ready, fits)
        if batch is None:
            return None
        names = " ".join(map(self._name, batch.entries))
        return f"{names} (aged)" if batch.aged else names

    def drain(self, now: float = 0.0) -> list[str]:
        """All batches that can start now, and the proof that the queue then stays idle."""
        taken = []
        while (names := self.take(now)) is not None:
            taken.append(names)
        self.stays_idle(now)
        return taken

    def stays_idle(
        self,
        now: float,
        ready: Callable[[str], bool] = anything,
        fits: Callable[[Entry], bool] = anything,
    ) -> None:
        """Nothing starts and nothing changes, however often one asks."""
        before = self.waiting
        for _ in range(IDLE_ROUNDS):
            assert self.take(now, ready, fits) is None
            assert self.waiting == before

    @property
    def waiting(self) -> set[str]:
        names = {name for name, entry in self.entries.items() if entry.waiting}
        counted = {entry.model for entry in self.entries.values()}
        assert sum(self.queue.waiting(model) for model in counted) == len(names)
        return names

    def _name(self, entry: Entry) -> str:
        return next(name for name, known in self.entries.items() if known is entry)
