"""The CPU as a device: what this process may really use of it."""

from __future__ import annotations

import math
import os
import platform
import uuid
from collections.abc import Sequence
from pathlib import Path

from treadle.clock import Clock, SystemClock
from treadle.devices.catalogue import FunctionSource, SourceSpec
from treadle.devices.cpu_readings import Heat, Memory, Power, Usage
from treadle.devices.device import (
    DeviceEvent,
    DeviceInfo,
    DeviceKind,
    DeviceProcess,
    Link,
    Mechanism,
    Source,
)
from treadle.devices.mechanisms import none_available
from treadle.types import Device

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def cpu_device(cgroup_root: Path = _CGROUP_ROOT) -> Device:
    """Describe the CPU with the cores and memory that this process is allowed.

    A container often sees all cores of its host but may use only some: the affinity mask and
    the cgroup's quota (version 2) count, whichever is smaller.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota_cores(cgroup_root / "cpu.max")
    if quota is not None:
        cores = max(1, min(cores, math.ceil(quota)))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read_number(cgroup_root / "memory.max")
    return Device(
        name="cpu",
        kind="cpu",
        cores=cores,
        memory_bytes=memory if limit is None else min(memory, limit),
    )


class CPUDevice:
    """The CPU as the monitor sees it.

    Args:
        clock: Whose time the readings have.
        root: Of the file system, for /proc and /sys.
        index: Its number among the devices.
    """

    def __init__(
        self, *, clock: Clock | None = None, root: Path = Path("/"), index: int = 0
    ) -> None:
        clock = clock or SystemClock()
        cgroup = root / "sys/fs/cgroup"
        device = cpu_device(cgroup)
        cores = tuple(sorted(os.sched_getaffinity(0)))
        self._info = DeviceInfo(
            uuid="CPU-" + _machine_id(root),
            index=index,
            name=cpu_model(root / "proc/cpuinfo"),
            kind=DeviceKind.CPU,
            cores=device.cores,
            memory_bytes=device.memory_bytes,
            host_cores=cores,
        )
        usage = Usage(
            clock,
            stat=root / "proc/stat",
            cores=cores,
            cgroup_stat=cgroup / "cpu.stat",
            quota_cores=_quota_cores(cgroup / "cpu.max"),
        )
        memory = Memory(
            clock, meminfo=root / "proc/meminfo", cgroup=cgroup, total_bytes=device.memory_bytes
        )
        heat, power = Heat(clock, root / "sys/class"), Power(clock, root / "sys/class/powercap")
        # The costs are those of a machine with two cores and no sensors.
        self._sources: list[Source] = [
            FunctionSource(SourceSpec("cpu.usage", ("cpu_utilization",), 0.1, 20e-6), usage.read),
            FunctionSource(
                SourceSpec("cpu.memory", ("memory_used", "memory_free"), 0.1, 50e-6), memory.read
            ),
            FunctionSource(SourceSpec("cpu.sensors", ("temperature",), 1.0, 20e-6), heat.read),
            FunctionSource(SourceSpec("cpu.rapl", ("power", "energy"), 0.1, 10e-6), power.read),
        ]

    @property
    def info(self) -> DeviceInfo:
        return self._info

    def mechanisms(self) -> Sequence[Mechanism]:
        return none_available("it is for GPUs, and this is the CPU")

    def links(self) -> Sequence[Link]:
        return ()

    def sources(self) -> Sequence[Source]:
        return self._sources

    def processes(self) -> Sequence[DeviceProcess]:
        """Nobody: a CPU has no contexts."""
        return ()

    def events(self) -> Sequence[DeviceEvent]:
        return ()

    def close(self) -> None:
        """Nothing to give back."""


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model's name, or the architecture's where the kernel tells none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, text = line.partition(":")
        if name.strip() == "model name" and text.strip():
            return text.strip()
    return f"{platform.machine()} CPU"


def _machine_id(root: Path) -> str:
    """What tells this machine from others, as far as it says; hashed, since it is confidential."""
    try:
        told = (root / "etc/machine-id").read_text().strip()
    except OSError:
        told = ""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"treadle {told or platform.node()}"))


def _quota_cores(path: Path) -> float | None:
    """Cores granted by a ``cpu.max`` file ("QUOTA PERIOD" in microseconds), None if unlimited."""
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max": no limit
        return None


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
