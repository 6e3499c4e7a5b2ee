"""The GPUs that models are served on: which they are, and what a worker needs to be gated there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from treadle.devices.device import DeviceInfo, DeviceKind
from treadle.devices.mps import ClientLimits
from treadle.errors import ModelLoadError
from treadle.monitor.snapshot import MonitorSnapshot
from treadle.node.steering import Steered
from treadle.serve.model import ServedModel
from treadle.turnstile import TurnstileError
from treadle.turnstile.launch import GateOptions, gate_environment
from treadle.types import Priority

_log = logging.getLogger("treadle.node")
_KNOWN_SECONDS = 30.0
_POLL_SECONDS = 0.05


class ServingGpus:
    """Finds GPUs by the number that a model's ``device`` gives."""

    def __init__(
        self,
        snapshot: Callable[[], MonitorSnapshot],
        turnstiles: Path,
        parallel: Callable[[str, ClientLimits], Awaitable[Mapping[str, str]]],
    ) -> None:
        """Prepare.

        Args:
            snapshot: What the monitor knows now.
            turnstiles: Their folder.
            parallel: The variables that a worker needs on a GPU in parallel mode; none on others.
        """
        self._snapshot, self._turnstiles, self._parallel = snapshot, turnstiles, parallel
        self._uuids: dict[str, str] = {}

    async def environment(
        self, device: str, name: str, priority: Priority, variables: Mapping[str, str]
    ) -> dict[str, str]:
        """The variables of a worker, with those that put it on its device and under the gate.

        Args:
            device: ``cpu``, or ``cuda:`` and a number.
            name: Of the worker.
            priority: Of its most urgent model.
            variables: What it has besides.

        Raises:
            ModelLoadError: If there is no such GPU; says why.
        """
        if device == "cpu":
            return dict(variables)
        gpu = await self._gpu(int(device.removeprefix("cuda:")))
        self._uuids[device] = gpu.uuid
        parallel = await self._parallel(gpu.uuid, ClientLimits(priority=priority))
        variables = {**variables, **parallel}
        options = GateOptions(
            priority=priority, folder=self._turnstiles, name=f"model {name}", gpus=gpu.uuid
        )
        try:
            return {**variables, **gate_environment(options, variables)}
        except TurnstileError as error:
            _log.warning("worker %s is not gated: %s", name, error)
            return {**variables, "CUDA_VISIBLE_DEVICES": gpu.uuid}

    async def device(self, device: str) -> DeviceInfo:
        """The GPU that ``cuda:`` and a number mean.

        Raises:
            ModelLoadError: If there is no such GPU; says why.
        """
        return await self._gpu(int(device.removeprefix("cuda:")))

    def steered(self, models: Iterable[ServedModel]) -> Iterator[Steered]:
        """The models whose objectives the GPUs' controllers are to keep."""
        for model in models:
            uuid, objective = self._uuids.get(model.device), model.config.p99_seconds
            if uuid and objective and model.ring is not None and model.ready:
                yield Steered(
                    name=f"model {model.name}",
                    priority=model.priority,
                    p99_seconds=objective,
                    ring=model.ring,
                    gpus=(uuid,),
                )

    async def _gpu(self, number: int) -> DeviceInfo:
        """Of that number, once the devices are known."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _KNOWN_SECONDS
        while True:
            snapshot = self._snapshot()
            if not snapshot.looking or loop.time() > deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
        gpus = [v.info for v in snapshot.devices if v.info.kind is DeviceKind.NVIDIA]
        for gpu in gpus:
            if gpu.index == number:
                return gpu
        there = ", ".join(f"cuda:{gpu.index}" for gpu in gpus)
        reasons = "; ".join(snapshot.reasons) or snapshot.trouble
        why = f"there is {there}" if there else reasons or "there is no GPU"
        raise ModelLoadError(f"no GPU cuda:{number} for it: {why}")
