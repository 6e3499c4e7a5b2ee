"""A model that the node knows, loaded or not."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from treadle.monitor.latency import LatencyRing
from treadle.predict import BatchLatency
from treadle.schedule import BatchRule, EachBucket, FixedBatch, ObjectiveBatch, Patience
from treadle.serve.config import ModelConfig
from treadle.serve.profiles import KnownLatency
from treadle.serve.standing import Standing
from treadle.serve.statistics import ModelStatistics
from treadle.serve.worker.group import WorkerGroup
from treadle.serve.worker.process import WorkerLane
from treadle.types import Priority, TensorSpec

_BOUNDED_SECONDS = 30.0
"""After memory ran out, until batches twice as large are tried."""


class ModelState(enum.StrEnum):
    """Where a model is in its life, in the words of the model repository extension."""

    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"


class ServedModel:
    """One model: what was configured, what it turned out to be, and how it is doing."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.name = config.name
        self.priority = config.priority_class
        self.device = config.device_name
        self.on_gpu = config.device != "cpu"
        self.batched = config.max_batch > 1
        self.streaming = config.streaming
        self.state = ModelState.UNAVAILABLE
        self.reason = "" if config.load else "not loaded"
        self.inputs: Sequence[TensorSpec] = ()
        self.outputs: Sequence[TensorSpec] = ()
        self.group: WorkerGroup | None = None
        lengths = (None,) if config.padding is None else config.padding.lengths
        self.latencies: dict[int | None, BatchLatency] = {n: BatchLatency() for n in lengths}
        """By the length that inputs are padded to; under None where they are not."""
        self.known = KnownLatency()
        """What was known of its latency when it was loaded."""
        self.statistics = ModelStatistics()
        self.standing = Standing(config.p99_seconds)
        steered = self.on_gpu and self.priority is not Priority.BACKGROUND
        self.ring = LatencyRing() if steered and config.p99_seconds is not None else None
        """The last latencies, where the controller of a GPU goes by them."""
        self.bounds: dict[str, int] = {}
        """What else bounds a batch's rows now, by who says so."""
        self._bounded_at = 0.0
        whole = config.p99_seconds if config.use_whole_objective else None
        self.patience = None if whole is None else Patience(whole)

    @property
    def most_rows(self) -> int:
        """How many rows a batch may hold now."""
        return min([self.config.max_batch, *self.bounds.values()])

    def memory_ran_out(self, fitted_rows: int, now: float) -> None:
        """Run smaller batches from now on: only so many rows fitted."""
        self.bounds["memory"], self._bounded_at = fitted_rows, now

    def try_more(self, now: float) -> None:
        """Let batches grow again, step by step: what took the memory may have gone."""
        rows = self.bounds.get("memory")
        if rows is not None and now - self._bounded_at >= _BOUNDED_SECONDS:
            self.bounds["memory"], self._bounded_at = 2 * rows, now
            if 2 * rows >= self.config.max_batch:
                del self.bounds["memory"]

    def batch_rule(self, *, by_objective: bool) -> BatchRule:
        """How its batches are sized.

        Args:
            by_objective: Whether by what is promised, if anything is.
        """
        config = self.config
        if config.p99_seconds is None or not by_objective:
            return FixedBatch(lambda: self.most_rows, config.max_delay_seconds)
        rules = {
            bucket: self._objective_batch(config.p99_seconds, latency)
            for bucket, latency in self.latencies.items()
        }
        return rules[None] if config.padding is None else EachBucket(rules)

    def _objective_batch(self, p99_seconds: float, latency: BatchLatency) -> ObjectiveBatch:
        patience = self.patience
        return ObjectiveBatch(
            p99_seconds,
            lambda: self.most_rows,
            latency.expect,
            lambda: latency.margin,
            max_delay_seconds=self.config.max_delay_seconds,
            patience=None if patience is None else lambda: patience.seconds,
        )

    def know(self, known: KnownLatency) -> None:
        """Take in what is known of its latency before it serves."""
        self.known = known
        if self.config.padding is None:  # made-up batches say nothing of lengths
            self.latencies[None].know(known.seconds)

    def longest_run(self, rows: int, now: float) -> float | None:
        """Seconds that a batch of ``rows`` takes at least, of the length that takes longest."""
        known = [latency.estimate(rows, now) for latency in self.latencies.values()]
        return max((seconds for seconds in known if seconds is not None), default=None)

    @property
    def ready(self) -> bool:
        """Whether a request would find a worker, now or after those before it."""
        return self.state is ModelState.READY and self.group is not None and self.group.alive

    @property
    def lanes(self) -> Iterable[WorkerLane]:
        """What could run a batch now or soon."""
        workers = () if self.group is None else self.group.workers
        return (worker.lane(self.name) for worker in workers)
