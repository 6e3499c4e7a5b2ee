"""An NVIDIA GPU as the monitor sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from treadle.clock import Clock, SystemClock
from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceInfo,
    DeviceProcess,
    Link,
    Mechanism,
    Source,
)
from treadle.devices.mechanisms import Host, gpu_mechanisms
from treadle.devices.nvidia.events import Events
from treadle.devices.nvidia.facts import (
    mig_on,
    read_facts,
    read_info,
    read_links,
    read_partition,
)
from treadle.devices.nvidia.library import NVML, MissingError
from treadle.devices.nvidia.processes import ProcessReader
from treadle.devices.nvidia.sources import Sources
from treadle.devices.nvidia.throttle import Throttle


class NvidiaGPU:
    """One GPU of the driver's list.

    Args:
        nvml: The library.
        index: Place in the driver's list.
        clock: Whose time the readings have.
        wall: The time of day, in which the driver stamps its samples.
        host: How to ask the machine.

    Raises:
        DeviceError: If the driver does not let it be opened, with the reason.
    """

    def __init__(
        self,
        nvml: NVML,
        index: int,
        *,
        clock: Clock | None = None,
        wall: Callable[[], float] = time.time,
        host: Host | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._nvml = nvml
        self._host = host or Host()
        self._gpu = nvml.call("nvmlDeviceGetHandleByIndex", index)
        self._info = read_info(nvml, self._gpu, index, self._host)
        self._processes = ProcessReader(nvml, self._gpu, wall)
        throttle = Throttle(nvml, self._gpu)
        self._sources = Sources(
            nvml,
            self._gpu,
            clock=clock,
            processes=self._processes,
            throttle=throttle,
            wall=wall,
        )
        self._table = self._sources.table()
        self._events = Events(
            nvml,
            self._gpu,
            uuid=self._info.uuid,
            clock=clock,
            throttle=throttle,
            processes=self._processes,
            partition=lambda: read_partition(nvml, self._gpu),
        )

    @property
    def info(self) -> DeviceInfo:
        return self._info

    def mechanisms(self) -> Sequence[Mechanism]:
        return gpu_mechanisms(read_facts(self._nvml, self._gpu), self._host)

    def links(self) -> Sequence[Link]:
        return read_links(self._nvml, self._gpu, self._others())

    def sources(self) -> Sequence[Source]:
        return self._table

    def processes(self) -> Sequence[DeviceProcess]:
        try:
            partitioned = mig_on(self._nvml, self._gpu)
        except MissingError:
            partitioned = False
        return self._processes.read(mig_on=partitioned)

    def events(self) -> Sequence[DeviceEvent]:
        return self._events.read()

    def close(self) -> None:
        """Give the driver back what it holds for us. The library stays loaded."""
        self._events.close()
        self._sources.close()

    def _others(self) -> list[tuple[str, Any]]:
        nvml = self._nvml
        others = []
        for index in range(int(nvml.call("nvmlDeviceGetCount"))):
            if index == self._info.index:
                continue
            try:
                gpu = nvml.call("nvmlDeviceGetHandleByIndex", index)
                others.append((str(nvml.call("nvmlDeviceGetUUID", gpu)), gpu))
            except DeviceError:  # one that cannot be opened has no link worth a word
                continue
        return others


def nvidia_gpus(
    nvml: NVML, *, clock: Clock | None = None, host: Host | None = None
) -> tuple[list[NvidiaGPU], list[str]]:
    """Every GPU that the driver lists, and why others, or all, are missing.

    Raises:
        DeviceError: If the driver does not tell how many there are.
    """
    count = int(nvml.call("nvmlDeviceGetCount"))
    gpus, reasons = [], []
    for index in range(count):
        try:
            gpus.append(NvidiaGPU(nvml, index, clock=clock, host=host))
        except DeviceError as error:
            reasons.append(f"GPU {index} cannot be used: {error}")
    if not count:
        reasons.append("the NVIDIA driver is loaded, but lists no GPU")
    return gpus, reasons
