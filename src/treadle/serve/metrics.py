"""What serving tells the outside: histograms, gauges and counters."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from treadle.serve.ticket import Ticket
from treadle.types import Priority

_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServeMetrics:
    """The serving metrics of one registry.

    Looking up a labelled child costs more than using it, so each is looked up once.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("model", "priority")
        queue = Histogram(
            "treadle_request_queue_seconds",
            "Time from acceptance until the batch starts",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        compute = Histogram(
            "treadle_request_compute_seconds",
            "Time that the model ran on the request's batch",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        total = Histogram(
            "treadle_request_seconds",
            "Time from the first byte's decoding to the answer, whole path in the node",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        ended = Counter(
            "treadle_requests",
            "Requests by how they ended: ok, refused, expired, failed, invalid, abandoned",
            (*labels, "outcome"),
            registry=registry,
        )
        depth = Gauge(
            "treadle_queue_depth", "Requests that wait for their turn", labels, registry=registry
        )
        rows = Histogram(
            "treadle_batch_rows", "Rows in a batch", ("model",), registry=registry, buckets=_ROWS
        )
        busy = Counter(
            "treadle_busy_seconds",
            "Device time that batches of this model held, in seconds of the whole device",
            ("model",),
            registry=registry,
        )
        # labels() takes a lock and hashes strings; these dictionaries do not.
        self._queue = cache(lambda model, priority: queue.labels(model, priority.label))
        self._compute = cache(lambda model, priority: compute.labels(model, priority.label))
        self._total = cache(lambda model, priority: total.labels(model, priority.label))
        self._ended = cache(lambda m, p, outcome: ended.labels(m, p.label, outcome))
        self._depth = cache(lambda model, priority: depth.labels(model, priority.label))
        self._rows = cache(rows.labels)
        self._busy = cache(busy.labels)

    def queue_depth(self, ticket: Ticket, change: int) -> None:
        self._depth(ticket.model, ticket.priority).inc(change)

    def batch(self, model: str, rows: int) -> None:
        self._rows(model).observe(rows)

    def busy(self, model: str, seconds: float) -> None:
        self._busy(model).inc(seconds)

    def answered(
        self, ticket: Ticket, *, queue_seconds: float, run_seconds: float, total_seconds: float
    ) -> None:
        """Record a request that was answered well."""
        model, priority = ticket.model, ticket.priority
        self._queue(model, priority).observe(queue_seconds)
        self._compute(model, priority).observe(run_seconds)
        self._total(model, priority).observe(total_seconds)
        self._ended(model, priority, "ok").inc()

    def ended(self, model: str, priority: Priority, outcome: str) -> None:
        """Record a request that ended in any other way."""
        self._ended(model, priority, outcome).inc()
