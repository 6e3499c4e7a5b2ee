"""Recordings played back as devices, so that all above can be tried on what really was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treadle.clock import Clock, SystemClock
from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceGoneError,
    DeviceInfo,
    DeviceProcess,
    Link,
    Mechanism,
    MonitoredDevice,
    Reading,
    Source,
)
from treadle.monitor.recording import Part, Recording, RecordingError, read
from treadle.monitor.ring import Samples

_COST_SECONDS = 0.000_05
_STAYS_SECONDS = 5.0
"""A recorded device is there for so long after its last reading."""


class _Time:
    """Where on the recording's time line the clock is."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock, self._speed = clock, speed
        self.started: float | None = None

    def position(self) -> float:
        """Seconds since the recording began. It begins when somebody first looks."""
        now = self._clock.now()
        if self.started is None:
            self.started = now
        return (now - self.started) * self._speed

    def moment(self, position: float) -> float:
        """When the clock was, or will be, at a position."""
        return (self.started or 0.0) + position / self._speed


class ReplayedSource:
    """A recorded source: gives what was read up to now, once."""

    def __init__(self, name: str, refresh_seconds: float, time: _Time) -> None:
        self.name = name if name.startswith("replay.") else f"replay.{name}"
        self.refresh_seconds, self.cost_seconds = refresh_seconds, _COST_SECONDS
        self._time = time
        self._rows: list[tuple[float, Reading]] = []
        self._next = 0
        self.metrics: tuple[str, ...] = ()

    def add(self, metric: str, positions: Sequence[float], readings: Sequence[Reading]) -> None:
        """Take in a metric's readings, with where they lie on the time line."""
        if metric not in self.metrics:
            self.metrics += (metric,)
        self._rows += zip(positions, readings, strict=True)

    def sort(self) -> None:
        self._rows.sort(key=lambda row: row[0])

    def read(self) -> Sequence[Reading]:
        position = self._time.position()
        found = []
        while self._next < len(self._rows) and self._rows[self._next][0] <= position:
            at, reading = self._rows[self._next]
            found.append(reading._replace(sampled_at=self._time.moment(at)))
            self._next += 1
        return found


class ReplayedDevice:
    """A recorded device."""

    def __init__(self, info: DeviceInfo, time: _Time) -> None:
        self.info = info
        self._time = time
        self._sources: dict[str, ReplayedSource] = {}
        self._events: list[tuple[float, DeviceEvent]] = []
        self.seconds = 0.0
        """How long its recording takes."""

    def source(self, name: str, refresh_seconds: float) -> ReplayedSource:
        """The source of that name, new if there was none."""
        if name not in self._sources:
            self._sources[name] = ReplayedSource(name, refresh_seconds, self._time)
        return self._sources[name]

    def sort(self) -> None:
        """All is there: put it in the order in which it was read."""
        for source in self._sources.values():
            source.sort()

    def happens(self, position: float, event: DeviceEvent) -> None:
        self._events.append((position, event))

    def mechanisms(self) -> Sequence[Mechanism]:
        return ()

    def links(self) -> Sequence[Link]:
        return ()

    def sources(self) -> Sequence[Source]:
        return list(self._sources.values())

    def processes(self) -> Sequence[DeviceProcess]:
        raise DeviceError("processes are not recorded")

    def events(self) -> Sequence[DeviceEvent]:
        position = self._time.position()
        if position > self.seconds + _STAYS_SECONDS and not self._events:
            raise DeviceGoneError("the recording is over")
        due = [(at, event) for at, event in self._events if at <= position]
        self._events = [(at, event) for at, event in self._events if at > position]
        return [
            DeviceEvent(self._time.moment(at), e.device, e.kind, e.severity, e.text)
            for at, e in due
        ]

    def close(self) -> None:
        pass


def replay(recording: Recording, clock: Clock, speed: float = 1.0) -> list[MonitoredDevice]:
    """The devices of a recording, which begin when somebody first reads one of them.

    Segments follow one another without the time between them.

    Args:
        recording: What to play.
        clock: Whose time it is played in: a clock that is moved by hand plays as fast as wanted.
        speed: Seconds of the recording in one of the clock's.
    """
    time = _Time(clock, speed)
    devices: dict[str, ReplayedDevice] = {}
    begin = 0.0
    for part in recording.parts:
        first, last = span(part)
        for info in part.segment.devices:
            devices.setdefault(info.uuid, ReplayedDevice(info, time))
        for number, samples in part.samples.items():
            one = part.segment.series[number]
            source = devices[one.device].source(one.source, one.interval_seconds)
            positions = (samples["at"] - first + begin).tolist()
            source.add(one.metric, positions, _readings(one.metric, samples, part.reasons))
        for event in part.events:
            if event.device in devices:
                devices[event.device].happens(event.at - first + begin, event)
        begin += last - first
    for device in devices.values():
        device.sort()
        device.seconds = begin
    return list(devices.values())


def span(part: Part) -> tuple[float, float]:
    """The times of a part's first and last sample, monotonic seconds."""
    if not part.samples:
        return part.segment.at, part.segment.at
    return (
        float(min(samples["at"].min() for samples in part.samples.values())),
        float(max(samples["at"].max() for samples in part.samples.values())),
    )


def _readings(metric: str, samples: Samples, reasons: Sequence[str]) -> list[Reading]:
    columns = (samples[name].tolist() for name in ("at", "value", "window", "reason"))
    return [
        Reading(
            metric, None if reason else value, at, window, reasons[reason - 1] if reason else ""
        )
        for at, value, window, reason in zip(*columns, strict=True)
    ]


def devices_from(argument: str) -> tuple[list[MonitoredDevice], list[str]]:
    """Find the devices of a recording: ``SPEED:FILE``. For the monitor's helper."""
    speed, _, file = argument.partition(":")
    recording = read(Path(file))
    devices = replay(recording, SystemClock(), float(speed))
    if not devices:
        raise RecordingError(f"{file} holds no readings")
    return devices, [f"{file}: missing: {recording.missing}"] if recording.missing else []


def seconds_of(recording: Recording) -> float:
    """How long a recording takes to play at its own speed."""
    return float(np.sum([last - first for first, last in map(span, recording.parts)]))
