"""What serving tells the outside: histograms, gauges and counters.

The figures are kept in plain Python and handed to Prometheus' client when it is asked for them:
its own histograms take a lock and walk their buckets at every observation, which for small
requests came to a tenth of the node's time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from treadle.types import Priority

_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
)
_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_WINDOW_SECONDS = 10

Labels = tuple[str, ...]


class Histogram:
    """Observations counted by bucket. A bucket's bound belongs to it."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Labels) -> None:
        """Hand the figures over; Prometheus counts cumulatively."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), total))
        family.add_metric(labels, buckets, self._sum)


class BusyShare:
    """How much of the device was held, over the last whole seconds."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        """Seconds of the whole device that were held, by second of the clock."""

    def add(self, start: float, end: float, share: float) -> None:
        """Record that ``share`` of the device was held from ``start`` to ``end``."""
        second = max(int(start), int(end) - _WINDOW_SECONDS)
        while second < end:
            part = min(end, second + 1) - max(start, second)
            self._held[second] = self._held.get(second, 0.0) + part * share
            second += 1
        if len(self._held) > 2 * _WINDOW_SECONDS:
            oldest = max(self._held) - _WINDOW_SECONDS
            self._held = {s: held for s, held in self._held.items() if s >= oldest}

    def value(self, now: float) -> float:
        """Share of the device that was held, 1 being all of it, mean over the window."""
        window = range(int(now) - _WINDOW_SECONDS, int(now))
        return sum(self._held.get(second, 0.0) for second in window) / _WINDOW_SECONDS


class _PerRequest:
    """The histograms of one model and class."""

    __slots__ = ("compute", "queue", "total")

    def __init__(self) -> None:
        self.queue = Histogram(_SECONDS)
        self.compute = Histogram(_SECONDS)
        self.total = Histogram(_SECONDS)


class _Waiting(Protocol):
    def depths(self) -> Mapping[tuple[str, Priority], int]:
        """Requests that wait, by model and class."""
        ...


class ServeMetrics(Collector):
    """The serving metrics of all devices, as a collector to register."""

    def __init__(self, waiting: Iterable[_Waiting], now: Callable[[], float]) -> None:
        self._waiting = list(waiting)
        self._now = now
        self._requests: dict[tuple[str, Priority], _PerRequest] = {}
        self._first_parts: dict[tuple[str, Priority], Histogram] = {}
        self._parts: Counter[tuple[str, Priority]] = Counter()
        self._ended: Counter[tuple[str, Priority, str]] = Counter()
        self._rows: dict[str, Histogram] = {}
        self._held_seconds: Counter[str] = Counter()
        self._busy: dict[str, BusyShare] = {}

    def batch(
        self, model: str, device: str, rows: int, start: float, end: float, share: float
    ) -> None:
        """Record a batch that held ``share`` of a device from ``start`` to ``end``."""
        if model not in self._rows:
            self._rows[model] = Histogram(_ROWS)
        self._rows[model].observe(rows)
        self._held_seconds[model] += (end - start) * share  # type: ignore[assignment]
        if device not in self._busy:
            self._busy[device] = BusyShare()
        self._busy[device].add(start, end, share)

    def answered(
        self, model: str, priority: Priority, queue: float, compute: float, total: float
    ) -> None:
        """Record a request that was answered well, with its times in seconds."""
        key = (model, priority)
        per_request = self._requests.get(key)
        if per_request is None:
            per_request = self._requests[key] = _PerRequest()
        per_request.queue.observe(queue)
        per_request.compute.observe(compute)
        per_request.total.observe(total)
        self._ended[model, priority, "ok"] += 1

    def part(self, model: str, priority: Priority) -> None:
        """Record a part of an answer that was taken."""
        self._parts[model, priority] += 1

    def first_part(self, model: str, priority: Priority, seconds: float) -> None:
        """Record the time to the first part of an answer."""
        key = (model, priority)
        if key not in self._first_parts:
            self._first_parts[key] = Histogram(_SECONDS)
        self._first_parts[key].observe(seconds)

    def ended(self, model: str, priority: Priority, outcome: str) -> None:
        """Record a request that ended in any other way."""
        self._ended[model, priority, outcome] += 1

    def collect(self) -> Iterable[Metric]:
        labels = ("model", "priority")
        queue = HistogramMetricFamily(
            "treadle_request_queue_seconds",
            "Time from acceptance until the batch starts",
            labels=labels,
        )
        compute = HistogramMetricFamily(
            "treadle_request_compute_seconds",
            "Time that the model ran on the request's batch",
            labels=labels,
        )
        total = HistogramMetricFamily(
            "treadle_request_seconds", "Time from arrival in the node to the answer", labels=labels
        )
        for (model, priority), per_request in self._requests.items():
            per_request.queue.add_to(queue, (model, priority.label))
            per_request.compute.add_to(compute, (model, priority.label))
            per_request.total.add_to(total, (model, priority.label))
        first_part = HistogramMetricFamily(
            "treadle_first_part_seconds",
            "Time from arrival in the node to the first part of an answer in parts",
            labels=labels,
        )
        for (model, priority), histogram in self._first_parts.items():
            histogram.add_to(first_part, (model, priority.label))
        parts = CounterMetricFamily(
            "treadle_parts", "Parts of answers that were taken", labels=labels
        )
        for (model, priority), count in self._parts.items():
            parts.add_metric((model, priority.label), count)
        ended = CounterMetricFamily(
            "treadle_requests",
            "Requests by how they ended: ok, refused, expired, failed, invalid, abandoned",
            labels=(*labels, "outcome"),
        )
        for (model, priority, outcome), count in self._ended.items():
            ended.add_metric((model, priority.label, outcome), count)
        depth = GaugeMetricFamily(
            "treadle_queue_depth", "Requests that wait for their turn", labels=labels
        )
        for queue_of_device in self._waiting:
            for (model, priority), waiting in queue_of_device.depths().items():
                depth.add_metric((model, priority.label), waiting)
        rows = HistogramMetricFamily("treadle_batch_rows", "Rows in a batch", labels=("model",))
        for model, histogram in self._rows.items():
            histogram.add_to(rows, (model,))
        held = CounterMetricFamily(
            "treadle_device_held_seconds",
            "Device time that batches of this model held, in seconds of the whole device",
            labels=("model",),
        )
        for model, seconds in self._held_seconds.items():
            held.add_metric((model,), seconds)
        busy = GaugeMetricFamily(
            "treadle_device_busy_share",
            f"Share of the device that batches held, mean of the last {_WINDOW_SECONDS} s; above "
            "1 while urgent work overtakes",
            labels=("device",),
        )
        for device, share in self._busy.items():
            busy.add_metric((device,), share.value(self._now()))
        yield from (queue, compute, total, first_part, parts, ended, depth, rows, held, busy)
