"""The devices as jobs see them: how much there is, and what others have taken."""

from __future__ import annotations

from collections.abc import Callable

from treadle.devices.device import DeviceKind
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot
from treadle.node.modes import GpuModes
from treadle.schedule.place import Room
from treadle.types import Device

CPU = "cpu"


def find_rooms(
    snapshot: MonitorSnapshot,
    cpu: Device,
    modes: GpuModes | None,
    jobs_memory: Callable[[str], int],
) -> list[Room]:
    """The CPU, and every GPU that the monitor sees.

    Args:
        snapshot: What the monitor sees.
        cpu: The CPU.
        modes: How GPUs are shared; None while nobody knows.
        jobs_memory: What jobs have taken of a GPU's memory now, by UUID.
    """
    rooms = [
        Room(CPU, False, cpu.memory_bytes, cpu.cores, cpu.memory_bytes, cpu.cores),
    ]
    return rooms + [
        _gpu(view, modes, jobs_memory)
        for view in snapshot.devices
        if view.info.kind is not DeviceKind.CPU
    ]


def _gpu(view: DeviceView, modes: GpuModes | None, jobs_memory: Callable[[str], int]) -> Room:
    info = view.info
    used = view.value("memory_used")
    # Jobs are counted by what they have reserved; served models and programs by what they use.
    others = 0 if used is None else max(0, int(used) - jobs_memory(info.uuid))
    return Room(
        info.uuid,
        True,
        info.memory_bytes,
        1.0,
        info.memory_bytes - others,
        1.0,
        single=modes is not None and modes.is_parallel(info.uuid),
        closed="" if modes is None else modes.closed(info.uuid),
    )
