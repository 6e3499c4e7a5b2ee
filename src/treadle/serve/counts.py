"""How requests ended, counted where it is told: metrics, statistics, standing."""

from __future__ import annotations

from treadle.clock import Clock
from treadle.errors import (
    AbandonedError,
    DeadlineError,
    ModelError,
    RequestError,
    UnavailableError,
)
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ServedModel
from treadle.serve.ticket import Answer, Ticket
from treadle.types import Priority

_MISSES = frozenset(("expired", "refused", "failed"))
"""How requests end that a client may hold against the model."""


class Counts:
    """Counts each request once, and the parts of answers."""

    def __init__(self, clock: Clock, metrics: ServeMetrics) -> None:
        self._clock = clock
        self._metrics = metrics

    def part(self, ticket: Ticket) -> None:
        self._metrics.part(ticket.model, ticket.priority)

    def first_part(self, ticket: Ticket) -> float:
        """Count the first part of an answer; the seconds to it are the request's latency."""
        now = self._clock.now()
        seconds = now - ticket.arrived
        self._metrics.first_part(ticket.model, ticket.priority, seconds)
        if ticket.served.ring is not None:
            ticket.served.ring.put(seconds, now)
        return seconds

    def answered(self, ticket: Ticket, answer: Answer, first: float | None = None) -> None:
        """Count a request that was answered.

        Args:
            ticket: The request.
            answer: What it was answered.
            first: The seconds to the first part, if it came in parts.
        """
        model, now = ticket.served, self._clock.now()
        total = now - ticket.arrived
        latency = total if first is None else first
        model.standing.answered(latency, now)
        if model.ring is not None and first is None:
            model.ring.put(total, now)
        if model.patience is not None:
            model.patience.observe(latency)
        model.statistics.success.add(total)
        model.statistics.queue.add(answer.queue_seconds)
        self._metrics.answered(
            model.name, ticket.priority, answer.queue_seconds, answer.run_seconds, total
        )

    def left(self, ticket: Ticket) -> None:
        """Count a request whose caller has lost interest."""
        self._metrics.ended(ticket.model, ticket.priority, "abandoned")

    def failed(self, ticket: Ticket, error: RequestError) -> None:
        """Count an accepted request that was not answered."""
        if not isinstance(error, AbandonedError):
            ticket.served.statistics.fail.add(self._clock.now() - ticket.arrived)
        self.ended(ticket.served, ticket.priority, error)

    def ended(self, model: ServedModel, priority: Priority, error: RequestError) -> None:
        """Count a request that was not answered, accepted or not."""
        outcome = _outcome(error)
        self._metrics.ended(model.name, priority, outcome)
        if outcome in _MISSES:
            model.standing.missed(outcome, str(error), self._clock.now())


def _outcome(error: RequestError) -> str:
    match error:
        case DeadlineError():
            return "expired"
        case UnavailableError():
            return "refused"
        case ModelError():
            return "failed"
        case AbandonedError():
            return "abandoned"
        case _:
            return "invalid"
