"""Joules: of each device, and of each task by its part of the measured work."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from treadle.devices.device import Reading
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
        self.begins = False
        """Whether the counter began, or began anew, at the last look: before is unknown."""
        self._counter: Reading | None = None
        self._estimated = 0.0
        """Joules since the counter was last known, by power."""
        self._power: float | None = None
        self._at = 0.0

    def look(self, device: DeviceView, now: float) -> float | None:
        """Joules since they were last known; None if they are not known now.

        The device's own counter is exact: it is taken each time that it was read anew, and what it
        counted while nobody could read it is not lost. Where it has none, power is taken to be
        between the two readings (the trapezoidal rule).
        """
        counter, power = device.readings.get("energy"), device.value("power")
        before_power, elapsed = self._power, now - self._at
        self._power, self._at = power, now
        self.begins = False
        drawn: float | None = None
        if counter is not None and counter.value is not None:
            before = self._counter
            if counter == before:
                return None
            if before is not None and before.value is not None and counter.value >= before.value:
                drawn = max(0.0, counter.value - before.value - self._estimated)
            self.begins = drawn is None
            self._counter, self._estimated = counter, 0.0
        elif power is not None and before_power is not None:
            drawn = (power + before_power) / 2 * elapsed
            self._estimated += drawn
        if drawn is not None:
            self.joules = (self.joules or 0.0) + drawn
        return drawn


class EnergyBook(Generic[Task]):
    """Keeps what devices have drawn, and what their tasks have used of it."""

    def __init__(self) -> None:
        self._devices: dict[str, DeviceEnergy] = {}
        self._work: dict[Task, float] = {}
        self._unpaid: dict[str, dict[Task, float]] = {}
        self.tasks: dict[Task, float] = {}
        """Joules of each task since it was first seen."""

    def look(self, device: DeviceView, work_seconds: Mapping[Task, float], now: float) -> None:
        """Take in a device and the GPU time that each of its tasks has had in all.

        Work waits until it is known what was drawn meanwhile: a counter is read more rarely than
        it is looked at, and who worked in between pays, too.
        """
        uuid = device.info.uuid
        energy = self._devices.setdefault(uuid, DeviceEnergy())
        drawn = energy.look(device, now)
        unpaid = self._unpaid.setdefault(uuid, {})
        for task, seconds in work_seconds.items():
            if task in self._work:
                worked = max(0.0, seconds - self._work[task])
                unpaid[task] = unpaid.get(task, 0.0) + worked
        self._work.update(work_seconds)
        if drawn is not None:
            for task, joules in split(drawn, unpaid).items():
                self.tasks[task] = self.tasks.get(task, 0.0) + joules
        if drawn is not None or energy.begins:
            unpaid.clear()

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
