"""The composition root: builds every part once, in order, and ends them in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

import treadle
from treadle.clock import SystemClock
from treadle.devices.cpu import cpu_device
from treadle.errors import UnavailableError
from treadle.monitor.exporter import DeviceMetrics
from treadle.node.api import NodeApi
from treadle.node.config import NodeConfig
from treadle.node.gpus import ServingGpus
from treadle.node.grpc import NodeGrpc
from treadle.node.jobs import NodeJobs
from treadle.node.jobs_api import JobsApi
from treadle.node.listeners import Listeners
from treadle.node.longkernels import LongKernelMetrics
from treadle.node.monitoring import NodeMonitor
from treadle.node.paths import state_folder
from treadle.node.profiles import ModelProfiles
from treadle.node.steering import SteeringMetrics
from treadle.schedule import POLICIES, Capacity, RequestQueue
from treadle.serve.access import AccessRules
from treadle.serve.dataplane import DataPlane, ServerInfo
from treadle.serve.engine import Engine
from treadle.serve.engines import Engines
from treadle.serve.http.app import build_app
from treadle.serve.http.codec import Codec
from treadle.serve.http.connection import PatientButNotForever
from treadle.serve.http.infer import InferEndpoint
from treadle.serve.http.stream import StreamEndpoint
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ServedModel
from treadle.serve.repository import NICE, Repository
from treadle.serve.sample import sample_body
from treadle.serve.sharedmemory import SharedMemory
from treadle.serve.tracing import find_tracer
from treadle.turnstile import default_folder
from treadle.types import Priority

_log = logging.getLogger("treadle.node")

_GC_THRESHOLDS = (20_000, 20, 50)
"""Requests leave no cycles behind: looking for them as often as Python does is wasted time."""

_GRACE_SECONDS = 5
"""For answers that are on their way to their clients when everything else is done."""

KILLED = 143
"""Exit code after a second SIGTERM: 128 and the signal's number, as shells count."""


class _Server(uvicorn.Server):
    """uvicorn's server, but signals belong to the node."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Node:
    """One life: startup, main loop, drain, shutdown."""

    def __init__(self, config: NodeConfig, file: Path, listeners: Listeners) -> None:
        self._config = config
        self._listeners = listeners
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        clock, registry = SystemClock(), CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        policy = POLICIES[config.schedule.policy]()
        models = {model.name: ServedModel(model) for model in config.model}
        device = cpu_device()
        batch_rules = {
            name: model.batch_rule(by_objective=policy.preempts) for name, model in models.items()
        }
        queues = {
            name: RequestQueue(
                policy,
                {m.name: batch_rules[m.name] for m in models.values() if m.device == name},
                age_limit_seconds=config.schedule.age_limit_seconds,
                aged_duty=config.schedule.aged_duty,
            )
            for name in {model.device for model in models.values()}
        }
        metrics = ServeMetrics(queues.values(), clock.now)
        registry.register(metrics)
        self._monitor = NodeMonitor(config.node.devices)
        registry.register(DeviceMetrics(self._monitor.snapshot))
        self._jobs = NodeJobs(
            config.jobs,
            config.service,
            config.gpu,
            file,
            state_folder() / "jobs",
            self._monitor.snapshot,
            models=lambda: gpus.steered(models.values()),
        )
        gpus = ServingGpus(self._monitor.snapshot, default_folder(), self._jobs.client_environment)
        registry.register(SteeringMetrics(self._jobs.steered))
        registry.register(LongKernelMetrics(self._jobs.long_kernels))
        of_device = {
            name: Engine(
                queue,
                Capacity(urgent_overtakes=policy.preempts),
                {m.name: m for m in models.values() if m.device == name},
                batch_rules,
                clock,
                metrics,
            )
            for name, queue in queues.items()
        }
        self._engines = Engines({m.name: of_device[m.device] for m in models.values()})
        self._repository = Repository(
            models,
            self._engines,
            device,
            file.parent,
            nice=NICE if policy.preempts else dict.fromkeys(Priority, 0),
            environment=gpus.environment,
            find_latency=ModelProfiles(gpus, device, file.parent, state_folder()).find,
        )
        self._plane = DataPlane(
            self._repository,
            self._engines,
            clock,
            metrics,
            ServerInfo(config.node.name, treadle.__version__),
            clients_may_raise_priority=config.schedule.clients_may_raise_priority,
        )
        self._codec = Codec(config.http.max_body_bytes)
        tracer, no_tracer = find_tracer(config.node.name)
        _log.debug("tracing is %s", no_tracer or "on")
        rules = AccessRules(
            token=config.http.token,
            open_model_control=config.http.open_model_control,
            shared_memory=config.http.shared_memory,
        )
        limit = config.http.max_body_bytes
        shared = SharedMemory(limit, self._codec.helper)
        self.grpc = NodeGrpc(
            config.grpc, file.parent, self._plane, self._codec.helper, shared, rules, tracer
        )
        api = NodeApi(
            self._plane,
            config,
            file,
            device,
            registry,
            self.stop,
            self._monitor,
            self._jobs,
            self.grpc,
        )
        infer = InferEndpoint(self._plane, self._codec, shared, rules, limit, tracer)
        app = build_app(
            self._plane,
            infer,
            StreamEndpoint(self._plane, infer, self._codec, shared, tracer),
            shared,
            rules,
            more_routes=[*api.routes(), *JobsApi(self._jobs).routes()],
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                http=_connection_kind(config.http.silence_seconds),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=config.http.keep_alive_seconds,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )

    @property
    def broken(self) -> str:
        """What keeps the node from being ready; empty if nothing does."""
        return self._plane.not_ready_reason

    def sample_requests(self, address: str) -> list[str]:
        """Commands that send a small request to the first model that takes one."""
        for model in self._repository.models:
            body = sample_body(model.inputs)
            if model.ready and body:
                kind = "infer_stream" if model.streaming else "infer"
                url = f"{address}/v2/models/{model.name}/{kind}"
                return [f"curl -s {url} -d {shlex.quote(body)}"]
        return []

    def stop(self) -> None:
        """Drain and end; at the second call, end at once."""
        (self._stop_now if self._stop.is_set() else self._stop).set()

    async def run(self, on_ready: asyncio.Future[None] | None = None) -> int:
        """Live until told to stop. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._monitor.start()
        await self.grpc.start()
        working = asyncio.create_task(self._jobs.start())
        serving = asyncio.create_task(self._server.serve(self._listeners.sockets))
        loading = asyncio.create_task(self._load(on_ready))
        try:
            await self._first(serving, self._stop)
            loading.cancel()
            return await self._end(serving)
        finally:
            self._codec.close()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await self._jobs.close()
            await self._monitor.close()

    async def _load(self, on_ready: asyncio.Future[None] | None) -> None:
        await self._repository.load_all()
        # What exists by now stays: the collector need not go through it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        self._plane.started = True
        if on_ready is not None:
            on_ready.set_result(None)

    async def _end(self, serving: asyncio.Task[None]) -> int:
        """Finish what was accepted, within limits, and let everything go."""
        self._plane.draining = True
        self._jobs.drain()
        _log.info("draining: %d requests are open", self._engines.open_requests)
        drained = asyncio.create_task(self._engines.drained())
        limit = self._config.node.drain_seconds
        deadline = asyncio.get_running_loop().time() + limit
        waits = [drained, asyncio.create_task(self._stop_now.wait())]
        await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        in_time = drained.done()
        if not in_time:
            _log.warning("%d requests are ended unanswered", self._engines.open_requests)
            self._repository.kill()
            self._engines.fail_all(UnavailableError("the server shuts down at once"))
        for task in waits:
            task.cancel()
        closing = asyncio.create_task(self._repository.close())  # ends what still loads
        self._server.should_exit = True
        self._server.force_exit = self._stop_now.is_set()
        grace_seconds = 0 if self._stop_now.is_set() else _GRACE_SECONDS
        await asyncio.gather(serving, self.grpc.stop(grace_seconds))
        await self._close_in_time(closing, deadline)
        _log.info("ended")
        return KILLED if self._stop_now.is_set() else 0

    async def _close_in_time(self, closing: asyncio.Task[None], deadline: float) -> None:
        """Wait for workers to end, by force once time is up or the second signal comes.

        A batch whose callers have all gone is nobody's open request, but may run for long.
        """
        now = asyncio.create_task(self._stop_now.wait())
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait([closing, now], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if not closing.done():
            self._repository.kill()
        await closing

    async def _first(self, task: asyncio.Task[None], event: asyncio.Event) -> None:
        """Wait until the task ends or the event is set."""
        waiting = asyncio.create_task(event.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


def _connection_kind(silence_seconds: float) -> type[PatientButNotForever]:
    """The connection class with its limit set: uvicorn takes a class, and no arguments for it."""
    return type("Connection", (PatientButNotForever,), {"silence_seconds": silence_seconds})
