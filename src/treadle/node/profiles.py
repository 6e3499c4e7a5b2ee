"""What models were measured to take, looked up when they are loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path

from treadle.devices.cpu import cpu_model
from treadle.errors import ModelLoadError
from treadle.node.gpus import ServingGpus
from treadle.predict.profile import Subject
from treadle.serve.config import ModelConfig
from treadle.serve.profiles import KnownLatency, find_latency, subject_of
from treadle.serve.repository import threads_of
from treadle.types import Device


class ModelProfiles:
    """Finds the profiles of a configuration's models on this machine."""

    def __init__(self, gpus: ServingGpus, device: Device, folder: Path, state: Path) -> None:
        """Prepare.

        Args:
            gpus: Those that models run on.
            device: The CPU.
            folder: The configuration's.
            state: The folder that profiles lie in unless their models name others.
        """
        self._gpus, self._device, self._folder, self._state = gpus, device, folder, state

    async def subject(self, config: ModelConfig) -> Subject:
        """What a profile of the model must be of, here and now.

        Raises:
            ModelLoadError: If its file or its device is not there.
        """
        on_cpu = config.device == "cpu"
        device = cpu_model() if on_cpu else (await self._gpus.device(config.device_name)).name
        threads = threads_of(config, self._device)
        # In a thread: files of some gigabytes take seconds.
        return await asyncio.to_thread(subject_of, config, self._folder, device, threads)

    async def find(self, config: ModelConfig) -> KnownLatency:
        """What is known of a model; nothing of one that cannot be loaded."""
        try:
            subject = await self.subject(config)
        except ModelLoadError:
            return KnownLatency()  # its worker says why
        return await asyncio.to_thread(find_latency, config, self._folder, self._state, subject)
