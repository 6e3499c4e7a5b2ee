"""The devices as jobs see them: how much there is, and what others have taken."""

from __future__ import annotations

from treadle.devices.device import DeviceKind
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot
from treadle.node.modes import GpuModes
from treadle.schedule.place import Room
from treadle.types import Device

CPU = "cpu"


def find_rooms(snapshot: MonitorSnapshot, cpu: Device, modes: GpuModes | None) -> list[Room]:
    """The CPU, and every GPU that the monitor sees."""
    rooms = [
        Room(CPU, False, cpu.memory_bytes, cpu.cores, cpu.memory_bytes, cpu.cores),
    ]
    return rooms + [
        _gpu(view, modes) for view in snapshot.devices if view.info.kind is not DeviceKind.CPU
    ]


def _gpu(view: DeviceView, modes: GpuModes | None) -> Room:
    info = view.info
    used, gated = view.value("memory_used"), view.value("gate_memory") or 0.0
    # What sits at the turnstile is counted by what it has reserved.
    others = 0 if used is None else max(0, int(used - gated))
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
