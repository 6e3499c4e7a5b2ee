"""Which models there are, and their life: load, swap in, unload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from treadle.errors import ModelError, ModelLoadError, NotFoundError, UnavailableError
from treadle.serve.config import ModelConfig
from treadle.serve.engines import Engines
from treadle.serve.model import ModelState, ServedModel
from treadle.serve.profiles import FindLatency, nothing_known
from treadle.serve.worker.group import WorkerGroup
from treadle.serve.worker.messages import Loaded, LoadFailed, ModelSetup
from treadle.types import Device, Priority, TensorSpec

_log = logging.getLogger("treadle.repository")

NICE: Mapping[Priority, int] = {
    Priority.CRITICAL: 0,
    Priority.NORMAL: 5,
    Priority.BACKGROUND: 19,
}
"""Scheduling priority of a worker on the CPU, by class: at 19 it runs when others do not."""


def threads_of(config: ModelConfig, device: Device) -> int:
    """How many threads a model gets of the CPU: its share of the cores, at least one."""
    return max(1, round(device.cores * config.share))


Environment = Callable[[str, str, Priority, Mapping[str, str]], Awaitable[dict[str, str]]]
"""Makes a worker's variables, of its device, its name, its class and what it has besides."""


class Repository:
    """The models of a node. Knows those that are not loaded, too."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        engines: Engines,
        device: Device,
        folder: Path,
        *,
        nice: Mapping[Priority, int],
        environment: Environment,
        find_latency: FindLatency = nothing_known,
    ) -> None:
        self._models = models
        self._engines = engines
        self._device = device
        self._folder = folder
        self._nice = nice
        self._environment = environment
        self._find_latency = find_latency
        self._locks = {m.config.worker_name: asyncio.Lock() for m in models.values()}
        self._groups: set[WorkerGroup] = set()
        self._retirements: set[asyncio.Task[None]] = set()

    @property
    def models(self) -> Sequence[ServedModel]:
        return list(self._models.values())

    def get(self, name: str, version: str = "") -> ServedModel:
        """Find a model.

        Raises:
            NotFoundError: If there is none of that name or version.
        """
        model = self._models.get(name)
        if model is None:
            raise NotFoundError(f"Request for unknown model: '{name}' is not found")
        if version and version != model.config.version:
            raise NotFoundError(
                f"Request for unknown model: '{name}' version {version} is not found; "
                f"served: {model.config.version}"
            )
        return model

    async def load_all(self) -> None:
        """Load every model that is configured to be loaded at the start.

        Those that cannot be loaded stay UNAVAILABLE with their reason; the others are served.
        """
        workers: dict[str, list[ServedModel]] = {}
        for model in self._models.values():
            if model.config.load:
                workers.setdefault(model.config.worker_name, []).append(model)
        await asyncio.gather(*(self._load_what_can(models) for models in workers.values()))

    async def load(self, name: str) -> None:
        """Load a model, or load it anew; what runs goes on until the new worker is ready.

        Raises:
            NotFoundError: If there is no model of that name.
            ModelLoadError: If it cannot be loaded; the text says why.
        """
        model = self.get(name)
        async with self._lock(model):
            beside = [m for m in self._beside(model) if m is not model]
            failed = await self._host([*beside, model])
            if failed is not None:
                raise ModelLoadError(f"failed to load '{name}', {failed.reason}")

    async def unload(self, name: str) -> None:
        """Serve what was accepted, then end the model's process, so that its memory returns.

        Raises:
            NotFoundError: If there is no model of that name.
        """
        model = self.get(name)
        async with self._lock(model):
            if model.group is None:
                model.reason = "unloaded"
                return
            model.state, model.reason = ModelState.UNLOADING, ""
            await self._engines.drained(name)
            old, beside = model.group, [m for m in self._beside(model) if m is not model]
            model.state, model.reason, model.group = ModelState.UNAVAILABLE, "unloaded", None
            if not beside:
                old.retire()
            elif await self._host(beside) is not None:
                _log.error("the shared worker keeps running, and its memory", extra={"model": name})
                return
            await old.ended()

    async def close(self) -> None:
        """End every worker once it is idle, and wait for that."""
        for group in self._groups:
            group.retire()
        await asyncio.gather(*(group.ended() for group in list(self._groups)))

    def kill(self) -> None:
        """End every worker now."""
        for group in self._groups:
            group.kill("was ended: the node shuts down at once")

    def _lock(self, model: ServedModel) -> AbstractAsyncContextManager[None]:
        return self._locks[model.config.worker_name]

    def _beside(self, model: ServedModel) -> list[ServedModel]:
        """The loaded models of the same worker."""
        worker = model.config.worker_name
        return [m for m in self._models.values() if m.config.worker_name == worker and m.group]

    async def _load_what_can(self, models: list[ServedModel]) -> None:
        async with self._lock(models[0]):
            while models:
                failed = await self._host(models)
                if failed is None:
                    return
                models = [m for m in models if m.name != failed.model]

    async def _host(self, models: list[ServedModel]) -> LoadFailed | None:
        """Start a group that hosts exactly these models, swap it in, let the old one go."""
        for model in models:
            if model.group is None:
                model.state, model.reason = ModelState.LOADING, ""
        first = models[0].config
        limit = max(model.config.load_limit_seconds for model in models)
        group: WorkerGroup | None = None
        try:
            variables = await self._environment(
                models[0].device, first.worker_name, min(m.priority for m in models), first.env
            )
            for model in models:
                model.know(await self._find_latency(model.config))
            group = self._new_group(models, variables)
            answer = await asyncio.wait_for(group.started(), limit)
        except TimeoutError:
            answer = LoadFailed(models[-1].name, f"it took longer than {limit:g} s to load")
        except ModelLoadError as error:
            answer = LoadFailed(models[-1].name, str(error))
        if isinstance(answer, LoadFailed) or group is None:
            if group is not None:
                group.kill("is not needed: loading failed")
            assert isinstance(answer, LoadFailed)
            for model in models:
                if model.group is None:
                    reason = answer.reason if model.name == answer.model else "loading again"
                    model.state, model.reason = ModelState.UNAVAILABLE, reason
            _log.error("cannot load: %s", answer.reason, extra={"model": answer.model})
            return answer
        self._swap_in(models, group, answer)
        return None

    def _new_group(self, models: list[ServedModel], variables: Mapping[str, str]) -> WorkerGroup:
        first = models[0].config
        group = WorkerGroup(
            first.worker_name,
            tuple(self.setup_of(model.config, self._device, self._folder) for model in models),
            replicas=first.replicas,
            env=variables,
            nice=self._nice[first.priority_class],
            on_idle=lambda: self._engines.wake([first.name]),
            on_lost=self._on_lost,
        )
        self._groups.add(group)
        task = asyncio.create_task(self._forget(group))
        self._retirements.add(task)
        task.add_done_callback(self._retirements.discard)
        return group

    async def _forget(self, group: WorkerGroup) -> None:
        await group.ended()
        self._groups.discard(group)

    def _swap_in(self, models: list[ServedModel], group: WorkerGroup, answer: Loaded) -> None:
        old = {model.group for model in models if model.group is not None}
        for model in models:
            inputs, outputs = (
                tuple(TensorSpec(*spec) for spec in specs)
                for specs in answer.signatures[model.name]
            )
            if model.config.padding is not None:
                inputs = model.config.padding.asked_of_clients(inputs)
            if (model.inputs, model.outputs) != (inputs, outputs):
                changed = f"model '{model.name}' has changed while the request waited; send it anew"
                self._engines.fail_waiting(model.name, UnavailableError(changed))
            model.inputs, model.outputs = inputs, outputs
            model.group, model.state, model.reason = group, ModelState.READY, ""
            _log.info("model is ready", extra={"model": model.name})
            for note in model.known.notes:
                _log.warning("%s", note, extra={"model": model.name})
        for previous in old:
            previous.retire()
        self._engines.wake([models[0].name])

    def _on_lost(self, group: WorkerGroup, reason: str) -> None:
        """A worker that had served could not load its models again."""
        for model in self._models.values():
            if model.group is group:
                self._lost_model(model, reason)

    def _lost_model(self, model: ServedModel, reason: str) -> None:
        model.group, model.state, model.reason = None, ModelState.UNAVAILABLE, reason
        self._engines.fail_waiting(model.name, ModelError(f"model '{model.name}' failed: {reason}"))

    @staticmethod
    def setup_of(config: ModelConfig, device: Device, folder: Path) -> ModelSetup:
        """What a worker is told of a model."""
        return ModelSetup(
            name=config.name,
            onnx=config.onnx,
            factory=config.factory,
            torchscript=config.torchscript,
            exported=config.exported,
            inputs=tuple((t.name, t.datatype, t.shape) for t in config.inputs),
            outputs=tuple((t.name, t.datatype, t.shape) for t in config.outputs),
            parameters=config.parameters,
            device="cpu" if config.device == "cpu" else "cuda",
            priority=int(config.priority_class),
            dtype=config.dtype or "",
            compile=config.compile,
            cuda_graph=config.cuda_graph,
            graph_memory_bytes=config.graph_memory_bytes,
            warm_up=config.warm_up_rows,
            sm_share=config.sm_share,
            threads=threads_of(config, device),
            streaming=config.streaming,
            padding=config.padding,
            max_batch=config.max_batch,
            folder=str(folder),
        )
