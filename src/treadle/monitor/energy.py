"""Joules: of each device, and of each task by its part of the measured work."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from treadle.monitor.snapshot import DeviceView

Task = TypeVar("Task", bound=Hashable)

JOULES_PER_WATT_HOUR = 3600.0


def split(joules: float, work_seconds: Mapping[Task, float]) -> dict[Task, float]:
    """Share out a device's energy by the GPU time of each task's launches meanwhile.

    A device draws power also when it idles: who works pays for that, too. While nobody works,
    nobody is charged. What ungated processes do is not known, and is charged to those at the gate.
    """
    total = sum(work_seconds.values())
    if total <= 0:
        return dict.fromkeys(work_seconds, 0.0)
    return {task: joules * work / total for task, work in work_seconds.items()}


class DeviceEnergy:
    """What one device has drawn since the first look."""

    def __init__(self) -> None:
        self.joules: float | None = None
        """None until the device has told its energy or power twice."""
        self._counter: float | None = None
        self._power: float | None = None
        self._at = 0.0

    def look(self, device: DeviceView, now: float) -> float | None:
        """Joules since the last look; None if they are not known.

        The device's own counter is exact. Where it has none, power is taken to be between the two
        readings (the trapezoidal rule).
        """
        counter, power = device.value("energy"), device.value("power")
        before, before_power, elapsed = self._counter, self._power, now - self._at
        self._counter, self._power, self._at = counter, power, now
        drawn: float | None = None
        if counter is not None and before is not None and counter >= before:
            drawn = counter - before
        elif counter is None and power is not None and before_power is not None:
            drawn = (power + before_power) / 2 * elapsed
        if drawn is not None:
            self.joules = (self.joules or 0.0) + drawn
        return drawn


class EnergyBook(Generic[Task]):
    """Keeps what devices have drawn, and what their tasks have used of it."""

    def __init__(self) -> None:
        self._devices: dict[str, DeviceEnergy] = {}
        self._work: dict[Task, float] = {}
        self.tasks: dict[Task, float] = {}
        """Joules of each task since it was first seen."""

    def look(self, device: DeviceView, work_seconds: Mapping[Task, float], now: float) -> None:
        """Take in a device and the GPU time that each of its tasks has had in all."""
        drawn = self._devices.setdefault(device.info.uuid, DeviceEnergy()).look(device, now)
        worked = {
            task: max(0.0, seconds - self._work[task])
            for task, seconds in work_seconds.items()
            if task in self._work
        }
        self._work.update(work_seconds)
        if drawn is not None:
            for task, joules in split(drawn, worked).items():
                self.tasks[task] = self.tasks.get(task, 0.0) + joules

    def joules(self, uuid: str) -> float | None:
        """What a device has drawn since the first look."""
        device = self._devices.get(uuid)
        return None if device is None else device.joules

    def check_integrity(self) -> None:
        """See that tasks were not charged more than devices have drawn."""
        drawn = sum(device.joules or 0.0 for device in self._devices.values())
        charged = sum(self.tasks.values())
        assert charged <= drawn * (1 + 1e-9) + 1e-9, (charged, drawn)


def samples_per_watt_hour(samples: float, joules: float | None) -> float | None:
    """Goodput for energy; None where no energy was charged."""
    return samples / (joules / JOULES_PER_WATT_HOUR) if joules else None
