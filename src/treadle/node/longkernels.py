"""Kernels that ran for too long, as Prometheus takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class LongKernelMetrics(Collector):
    """Counts them by GPU, and by what was to be done with their jobs."""

    def __init__(self, counts: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._counts = counts

    def collect(self) -> Sequence[CounterMetricFamily]:
        found = CounterMetricFamily(
            "treadle_long_kernels",
            "Kernels that ran for longer than their job may have any run.",
            labels=("gpu", "action"),
        )
        for labels, count in self._counts().items():
            found.add_metric(labels, count)
        return [found]
