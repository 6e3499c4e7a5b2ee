"""Counters of one model, in the form of the statistics extension."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

_NS = 1e9


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.seconds += seconds

    def as_json(self) -> dict[str, int]:
        return {"count": self.count, "ns": int(self.seconds * _NS)}


@dataclass(slots=True)
class _BatchDurations:
    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)

    def add(self, input_seconds: float, run_seconds: float, output_seconds: float, n: int) -> None:
        self.compute_input.add(input_seconds, n)
        self.compute_infer.add(run_seconds, n)
        self.compute_output.add(output_seconds, n)

    def as_json(self) -> dict[str, Any]:
        return {
            "compute_input": self.compute_input.as_json(),
            "compute_infer": self.compute_infer.as_json(),
            "compute_output": self.compute_output.as_json(),
        }


@dataclass(slots=True)
class ModelStatistics:
    """What happened to a model's requests since the node started."""

    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: _BatchDurations = field(default_factory=_BatchDurations)
    batches: dict[int, _BatchDurations] = field(default_factory=dict)

    def executed(
        self,
        *,
        requests: int,
        rows: int,
        input_seconds: float,
        run_seconds: float,
        output_seconds: float,
    ) -> None:
        """Count one batch that ran."""
        self.last_inference_ms = int(time.time() * 1000)
        self.inference_count += rows
        self.execution_count += 1
        self.compute.add(input_seconds, run_seconds, output_seconds, requests)
        batch = self.batches.setdefault(rows, _BatchDurations())
        batch.add(input_seconds, run_seconds, output_seconds, 1)

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """The ``$model_stat`` object of the statistics extension."""
        never = Duration().as_json()
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": self.success.as_json(),
                "fail": self.fail.as_json(),
                "queue": self.queue.as_json(),
                **self.compute.as_json(),
                "cache_hit": never,
                "cache_miss": never,
            },
            "response_stats": {},
            "batch_stats": [
                {"batch_size": size, **self.batches[size].as_json()}
                for size in sorted(self.batches)
            ],
            "memory_usage": [],
        }
