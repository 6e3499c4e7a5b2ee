"""Requests of one model that are padded to several lengths, each with run times of its own."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.schedule.batching import NOBODY, BatchChoice, BatchRule, Others
from treadle.schedule.entry import Entry


class EachBucket:
    """A rule for each bucket; to each, the other buckets are what other models are."""

    def __init__(self, rules: Mapping[int | None, BatchRule]) -> None:
        self._rules = rules

    def arrived(self, entry: Entry) -> None:
        self._rules[entry.bucket].arrived(entry)

    def choose(
        self, head: Entry, waiting_rows: int, now: float, others: Others = NOBODY
    ) -> BatchChoice:
        beside = [rule for bucket, rule in self._rules.items() if bucket != head.bucket]
        needs = Others(
            min([others.free_by, *(rule.latest_start(None, 0, now) for rule in beside)]),
            others.load + sum(rule.load(now) for rule in beside),
        )
        return self._rules[head.bucket].choose(head, waiting_rows, now, needs)

    def latest_start(self, head: Entry | None, waiting_rows: int, now: float) -> float:
        # Only the first of all buckets is known here; the others count as they come.
        starts = []
        for bucket, rule in self._rules.items():
            if head is not None and bucket == head.bucket:
                starts.append(rule.latest_start(head, waiting_rows, now))
            else:
                starts.append(rule.latest_start(None, 0, now))
        return min(starts)

    def load(self, now: float) -> float:
        return sum(rule.load(now) for rule in self._rules.values())
