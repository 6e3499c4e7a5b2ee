"""What the node itself answers: status, metrics, stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import treadle
from treadle.errors import ForbiddenError
from treadle.node.callers import caller_of
from treadle.node.config import NodeConfig
from treadle.node.grpc import NodeGrpc
from treadle.node.jobs import NodeJobs
from treadle.node.monitoring import NodeMonitor
from treadle.serve.dataplane import DataPlane
from treadle.serve.http.answers import JSONAnswer
from treadle.serve.model import ServedModel
from treadle.types import Device


class NodeApi:
    """``/metrics`` for everybody; ``/treadle/v1/…`` for the owner."""

    def __init__(
        self,
        plane: DataPlane,
        config: NodeConfig,
        file: Path,
        device: Device,
        registry: CollectorRegistry,
        stop: Callable[[], None],
        monitor: NodeMonitor,
        jobs: NodeJobs,
        grpc: NodeGrpc,
    ) -> None:
        self._plane = plane
        self._config = config
        self._file = file
        self._device = device
        self._registry = registry
        self._stop = stop
        self._monitor = monitor
        self._jobs = jobs
        self._grpc = grpc
        self._started_at = time.time()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/treadle/v1/status", self._status, methods=["GET"]),
            Route("/treadle/v1/monitor", self._readings, methods=["GET"]),
            Route("/treadle/v1/stop", self._stop_node, methods=["POST"]),
        ]

    async def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})

    async def _status(self, request: Request) -> Response:
        caller_of(request)
        http = self._config.http
        return JSONAnswer(
            {
                "version": treadle.__version__,
                "pid": os.getpid(),
                "started_at": self._started_at,
                "config": str(self._file),
                "http": {"host": http.host, "port": http.port},
                "grpc": self._grpc.status(),
                "policy": self._config.schedule.policy,
                "ready": self._plane.ready,
                "reason": self._plane.not_ready_reason,
                "open_requests": self._plane.open_requests,
                "device": {
                    "name": self._device.name,
                    "cores": self._device.cores,
                    "memory_bytes": self._device.memory_bytes,
                },
                "monitor": self._monitor.status(),
                "jobs": self._jobs.status(),
                "models": [self._model(model) for model in self._plane.repository.models],
            }
        )

    async def _readings(self, request: Request) -> Response:
        """Where the monitor's readings lie, and its events ``?after=`` so many."""
        caller_of(request)
        after = request.query_params.get("after", "")
        shared = self._monitor.shared(
            int(after) if after.isdecimal() and len(after) < _MOST_DIGITS else 0
        )
        return JSONAnswer(msgspec.to_builtins(shared))

    async def _stop_node(self, request: Request) -> Response:
        if not caller_of(request).owner:
            raise ForbiddenError("the node is for its owner to stop")
        self._stop()
        return JSONAnswer({"pid": os.getpid()}, 202)

    def _model(self, model: ServedModel) -> dict[str, Any]:
        config, group = model.config, model.group
        statistics = model.statistics
        return {
            "name": model.name,
            "version": config.version,
            "source": config.source,
            "device": config.device,
            "priority": config.priority,
            "p99_seconds": config.p99_seconds,
            "max_batch": config.max_batch,
            "when_late": config.when_late,
            "most_rows": model.most_rows,
            "max_delay_seconds": config.max_delay_seconds,
            "queue_limit": config.queue_limit,
            "share": config.share,
            "replicas": config.replicas,
            "state": str(model.state),
            "reason": model.reason,
            "notes": list(model.known.notes),
            "profile": str(model.known.file) if model.known.file else None,
            "pids": sorted(worker.pid for worker in group.workers) if group else [],
            "restarts": group.restarts if group else 0,
            "standing": model.standing.as_json(self._plane.now()),
            "waiting": self._plane.waiting(model.name),
            "answered": statistics.success.count,
            "failed": statistics.fail.count,
            "examples": [str(self._file.parent / example) for example in config.examples],
        }


_MOST_DIGITS = 18
