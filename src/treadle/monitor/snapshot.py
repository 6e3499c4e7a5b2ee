"""What the monitor knows at one moment. Everything above it looks at this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from treadle.devices.device import DeviceInfo, Reading
from treadle.monitor.directory import SourceEntry
from treadle.monitor.ring import SAMPLE, Reader, Samples

_LEAST_STALE_SECONDS = 3.0
_STALE_INTERVALS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """A device and its newest readings."""

    info: DeviceInfo
    readings: Mapping[str, Reading]
    """By metric. Every metric that the device has a source for is there."""
    sources: Mapping[str, str]
    """Where each metric comes from."""

    def value(self, metric: str) -> float | None:
        """The newest value; None if there is none."""
        reading = self.readings.get(metric)
        return None if reading is None else reading.value


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSnapshot:
    """All devices."""

    at: float
    devices: tuple[DeviceView, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why there are no other devices."""
    trouble: str = ""
    """What keeps readings from coming; empty if nothing does."""
    looking: bool = False
    """Whether nobody knows yet which devices there are."""
    restarts: int = 0
    helper_pid: int | None = None
    left_out: tuple[SourceEntry, ...] = field(default=())
    """Sources that hung again and again, and are not asked any more."""


def views(
    reader: Reader, now: float, trouble: str, left_out: tuple[SourceEntry, ...]
) -> tuple[DeviceView, ...]:
    """Every device with its newest readings; while there is trouble, none has a value."""
    directory = reader.directory
    readings: dict[str, dict[str, Reading]] = {d.uuid: {} for d in directory.devices}
    sources: dict[str, dict[str, str]] = {d.uuid: {} for d in directory.devices}
    limits = _limits(reader)
    for number, one in enumerate(directory.series):
        reading = reader.latest(number) or Reading(
            one.metric, None, now, 0.0, f"{one.source} has not been read yet"
        )
        age = now - reading.sampled_at
        if trouble:
            reading = reading._replace(value=None, reason=trouble)
        elif age > limits[one.device, one.source] and reading.value is not None:
            reading = reading._replace(
                value=None, reason=f"no reading from {one.source} for {age:.1f} s"
            )
        readings[one.device][one.metric] = reading
        sources[one.device][one.metric] = one.source
    for entry in left_out:
        for metric in entry.metrics:
            if entry.device in readings and metric not in readings[entry.device]:
                readings[entry.device][metric] = Reading(
                    metric, None, now, 0.0, f"{entry.name} hung again and again: left out"
                )
                sources[entry.device][metric] = entry.name
    return tuple(
        DeviceView(info=info, readings=readings[info.uuid], sources=sources[info.uuid])
        for info in directory.devices
    )


def recent(reader: Reader | None, uuid: str, metric: str, after: float) -> Samples:
    """The samples of a metric after a moment, the oldest first; those without value too."""
    if reader is not None:
        for number, one in enumerate(reader.directory.series):
            if (one.device, one.metric) == (uuid, metric):
                samples = reader.since(number)
                kept: Samples = samples[samples["at"] > after]
                return kept
    return np.zeros(0, SAMPLE)


def _limits(reader: Reader) -> dict[tuple[str, str], float]:
    """From what age a reading is stale, by device and source, at the pace that it is read now."""
    limits: dict[tuple[str, str], float] = {}
    for one in reader.directory.series:
        limits[one.device, one.source] = one.interval_seconds
    for number, entry in enumerate(reader.directory.sources):
        limits[entry.device, entry.name] = reader.pace(number).interval_seconds
    return {
        key: max(_LEAST_STALE_SECONDS, _STALE_INTERVALS * seconds)
        for key, seconds in limits.items()
    }
