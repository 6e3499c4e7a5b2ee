"""How many requests run together, and whether to wait for company."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from treadle.schedule.entry import Entry


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """A batch may hold up to ``max_rows`` rows and should not start before ``not_before``."""

    max_rows: int
    not_before: float


class BatchRule(Protocol):
    """Chooses the batch that starts with ``head``. One rule a model."""

    def choose(self, head: Entry, waiting_rows: int, now: float) -> BatchChoice:
        """Decide for the request at the head of the line.

        Args:
            head: The request that is next; it is always in the batch.
            waiting_rows: Rows of all waiting requests that could join it, its own included.
            now: The time, in seconds.
        """
        ...


class FixedBatch:
    """A maximum size, and a maximum delay that the first request waits for others."""

    def __init__(self, max_rows: int, max_delay_seconds: float = 0.0) -> None:
        self._max_rows = max_rows
        self._max_delay_seconds = max_delay_seconds

    def choose(self, head: Entry, waiting_rows: int, now: float) -> BatchChoice:
        full = waiting_rows >= self._max_rows
        not_before = now if full else head.arrived + self._max_delay_seconds
        return BatchChoice(self._max_rows, not_before)
