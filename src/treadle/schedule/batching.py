"""How many requests run together, and whether to wait for company."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from treadle.schedule.entry import Entry


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """A batch may hold up to ``max_rows`` rows and should not start before ``not_before``."""

    max_rows: int
    not_before: float
    late: bool = False
    """Its first request cannot be answered when it is due, or only at the cost of many others:
    let those go first that can."""


@dataclass(frozen=True, slots=True)
class Others:
    """What the other models that share a device, of the same class, need of it."""

    free_by: float = math.inf
    """When the device has to be free for them; inf if nothing is promised."""
    load: float = 0.0
    """The part of its time that they take."""


NOBODY = Others()


class BatchRule(Protocol):
    """Chooses the batch that starts with ``head``. One rule a model."""

    def arrived(self, entry: Entry) -> None:
        """Count what comes in: a rule may have to know what it must keep up with."""
        ...

    def choose(
        self, head: Entry, waiting_rows: int, now: float, others: Others = NOBODY
    ) -> BatchChoice:
        """Decide for the request at the head of the line.

        Args:
            head: The request that is next; it is always in the batch.
            waiting_rows: Rows of all waiting requests that could join it, its own included.
            now: The time, in seconds.
            others: What the other models of the same device need.
        """
        ...

    def latest_start(self, head: Entry | None, waiting_rows: int, now: float) -> float:
        """When the request and its company have to start, to be answered when they are due.

        Where none waits, it is that of one which comes now. Infinity if nothing is promised.
        """
        ...

    def load(self, now: float) -> float:
        """The part of the device's time that its requests take, in batches that are in time."""
        ...


class FixedBatch:
    """A maximum size, and a maximum delay that the first request waits for others."""

    def __init__(self, max_rows: int | Callable[[], int], max_delay_seconds: float = 0.0) -> None:
        self._max_rows = max_rows if callable(max_rows) else lambda: max_rows
        self._max_delay_seconds = max_delay_seconds

    def arrived(self, entry: Entry) -> None:
        pass

    def choose(
        self, head: Entry, waiting_rows: int, now: float, others: Others = NOBODY
    ) -> BatchChoice:
        most = max(head.rows, self._max_rows())
        full = waiting_rows >= most
        not_before = now if full else head.arrived + self._max_delay_seconds
        return BatchChoice(most, not_before)

    def latest_start(self, head: Entry | None, waiting_rows: int, now: float) -> float:
        return math.inf

    def load(self, now: float) -> float:
        return 0.0


class ObjectiveBatch:
    """The largest batch that still answers its first request when it is due.

    Batches grow with the line, as long as the first request's time allows. Where a batch of that
    size could not keep up with what arrives, the first request is given up for the many behind
    it: else every batch would be small to save one request, and the next one late as well (after
    Nexus, SOSP'19, section 6.1).
    """

    def __init__(
        self,
        objective_seconds: float,
        max_rows: Callable[[], int],
        expect: Callable[[int], float | None],
        margin: Callable[[], float],
        *,
        max_delay_seconds: float = 0.0,
        patience: Callable[[], float] | None = None,
    ) -> None:
        """Make a rule.

        Args:
            objective_seconds: What is promised at P99.
            max_rows: The most that a batch may hold now.
            expect: Seconds that a batch of so many rows will take; None if that is unknown.
            margin: By what factor a batch may take longer than expected.
            max_delay_seconds: How long the first request may wait for others, as far as its
                objective allows.
            patience: How long after its arrival the first request may be answered, in seconds:
                given that, it waits for company until then. None: it waits for none.
        """
        self._objective_seconds = objective_seconds
        self._max_rows = max_rows
        self._expect = expect
        self._margin = margin
        self._max_delay_seconds = max_delay_seconds
        self._patience = patience
        self._flow = _Flow()

    def arrived(self, entry: Entry) -> None:
        self._flow.add(entry.rows, entry.arrived)

    def choose(
        self, head: Entry, waiting_rows: int, now: float, others: Others = NOBODY
    ) -> BatchChoice:
        most = max(head.rows, self._max_rows())
        wanted = min(most, waiting_rows)
        margin = self._margin()
        if head.late or head.due == math.inf or self._expect(1) is None:
            # It has nothing to lose. Others may have: it does not keep them waiting.
            seconds = (others.free_by - now) / margin
            return BatchChoice(self._largest(head.rows, wanted, seconds), now)
        in_time = self._largest(head.rows, wanted, (head.due - now) / margin)
        rows = self._largest(head.rows, in_time, (others.free_by - now) / margin)
        if now + (self._expect(head.rows) or 0.0) * margin > head.due:
            return BatchChoice(rows, now, late=True)
        if rows < wanted:
            needed = min(wanted, self._needed(most, 1 - others.load, now))
            if in_time < needed:
                return BatchChoice(rows, now, late=True)
            rows = max(rows, needed)
        return BatchChoice(rows, self._not_before(head, wanted, most, margin, now))

    def latest_start(self, head: Entry | None, waiting_rows: int, now: float) -> float:
        if head is None or head.late:
            arrived, due = now, now + self._objective_seconds
        else:
            arrived, due = head.arrived, head.due
        coming = self._flow.rate(now) * (due - arrived)
        if max(waiting_rows, coming) < 1:
            return math.inf
        seconds = self._expect(min(self._max_rows(), max(waiting_rows, int(coming))))
        return math.inf if seconds is None else due - seconds * self._margin()

    def _largest(self, least: int, most: int, seconds: float) -> int:
        """The largest size, from ``least`` to ``most``, that takes no longer than that."""
        if seconds == math.inf or (self._expect(most) or 0.0) <= seconds:
            return most
        low, high = least, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if (self._expect(middle) or 0) <= seconds else (low, middle)
        return low

    def load(self, now: float) -> float:
        rows = self._largest(1, self._max_rows(), self._objective_seconds / 2 / self._margin())
        return self._flow.rate(now) * (self._expect(rows) or 0.0) / rows

    def _needed(self, most: int, part: float, now: float) -> int:
        """The smallest batch that keeps up with what comes, in that part of the device's time."""
        rate = self._flow.rate(now)

        def keeps_up(rows: int) -> bool:
            return rate * (self._expect(rows) or 0.0) / rows <= part

        low, high = 0, 1
        while high < most and not keeps_up(high):
            low, high = high, min(most, 2 * high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if keeps_up(middle) else (middle, high)
        return high

    def _not_before(self, head: Entry, wanted: int, most: int, margin: float, now: float) -> float:
        if wanted >= most:
            return now
        seconds = (self._expect(min(most, wanted + 1)) or 0.0) * margin
        if self._patience is not None:
            return min(head.arrived + self._patience(), head.due) - seconds
        return min(head.arrived + self._max_delay_seconds, head.due - seconds)


class _Flow:
    """Rows a second that arrive: the mean of the last requests."""

    _REMEMBERED = 64

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self._rows = 0

    def add(self, rows: int, now: float) -> None:
        self._arrivals.append((now, rows))
        self._rows += rows
        if len(self._arrivals) > self._REMEMBERED:
            self._rows -= self._arrivals.popleft()[1]

    def rate(self, now: float) -> float:
        if len(self._arrivals) < 2:
            return 0.0
        return self._rows / max(now - self._arrivals[0][0], 1e-6)
