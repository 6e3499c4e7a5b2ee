"""A model that the node knows, loaded or not."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from treadle.predict import BatchLatency
from treadle.serve.config import ModelConfig
from treadle.serve.statistics import ModelStatistics
from treadle.serve.worker.group import WorkerGroup
from treadle.serve.worker.process import WorkerProcess
from treadle.types import TensorSpec


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
        self.batched = config.max_batch > 1
        self.state = ModelState.UNAVAILABLE
        self.reason = "" if config.load else "not loaded"
        self.inputs: Sequence[TensorSpec] = ()
        self.outputs: Sequence[TensorSpec] = ()
        self.group: WorkerGroup | None = None
        self.latency = BatchLatency()
        self.statistics = ModelStatistics()

    @property
    def ready(self) -> bool:
        """Whether a request would find a worker, now or after those before it."""
        return self.state is ModelState.READY and self.group is not None and self.group.alive

    @property
    def workers(self) -> Iterable[WorkerProcess]:
        """The processes that could run a batch now or soon."""
        return () if self.group is None else self.group.workers
