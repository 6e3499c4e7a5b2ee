"""Small devices that answer, fail, hang or go as they are told by files in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceGoneError,
    DeviceInfo,
    DeviceKind,
    DeviceProcess,
    Link,
    Mechanism,
    MonitoredDevice,
    Reading,
    Severity,
    Source,
)

FOLDER = "TREADLE_TEST_FAKES"
"""The variable that names the folder. A file there, such as ``hang-fake.temperature``, is an
order."""


def told(order: str) -> Path | None:
    """The file of an order, if it was given."""
    path = Path(os.environ.get(FOLDER, "/nonexistent")) / order
    return path if path.exists() else None


class FakeSource:
    """A source that counts."""

    def __init__(
        self,
        device: int,
        name: str,
        metrics: tuple[str, ...],
        *,
        refresh_seconds: float = 0.1,
        cost_seconds: float = 0.00001,
    ) -> None:
        self.name, self.metrics = name, metrics
        self.refresh_seconds, self.cost_seconds = refresh_seconds, cost_seconds
        self.device, self.reads = device, 0

    def read(self) -> Sequence[Reading]:
        while told(f"hang-{self.name}"):
            time.sleep(0.01)
        if told(f"gone-{self.device}"):
            raise DeviceGoneError("GPU is lost")
        if told(f"fail-{self.name}"):
            raise DeviceError("it was told to fail")
        self.reads += 1
        now = time.monotonic()
        values = {
            "temperature": 40.0 + self.device,
            "power": 100.0 + 50 * self.device,
            "energy": 1000.0 + self.reads,
            "memory_used": 2.0 * 2**30,
            "memory_free": 6.0 * 2**30,
            "sm_activity": 0.5,
        }
        return [
            Reading(metric, values[metric], now, 0.0)
            if metric in values
            else Reading(metric, None, now, 0.0, "a fake has none")
            for metric in self.metrics
        ]


class FakeDevice:
    """A device of a few sources."""

    def __init__(self, index: int = 0, sources: Sequence[Source] | None = None) -> None:
        self.info = DeviceInfo(
            uuid=f"FAKE-{index}",
            index=index,
            name="Fake 8GB",
            kind=DeviceKind.SIMULATED,
            cores=16,
            memory_bytes=8 << 30,
        )
        self._sources = sources or (
            FakeSource(index, "fake.temperature", ("temperature", "fan_speed")),
            FakeSource(index, "fake.power", ("power", "energy")),
            FakeSource(index, "fake.memory", ("memory_used", "memory_free", "sm_activity")),
        )
        self.running: list[DeviceProcess] = []
        self._throttled = False

    def mechanisms(self) -> Sequence[Mechanism]:
        return ()

    def links(self) -> Sequence[Link]:
        return ()

    def sources(self) -> Sequence[Source]:
        return self._sources

    def processes(self) -> Sequence[DeviceProcess]:
        if order := told(f"processes-{self.info.index}"):
            pids = order.read_text().split()
            return [DeviceProcess(int(pid), "stranger", None, None, "a fake") for pid in pids]
        return self.running

    def events(self) -> Sequence[DeviceEvent]:
        while told(f"hang-events-{self.info.index}"):
            time.sleep(0.01)
        if bool(told("throttle")) is self._throttled:
            return ()
        self._throttled = not self._throttled
        kind = "throttle-start" if self._throttled else "throttle-end"
        return [DeviceEvent(time.monotonic(), self.info.uuid, kind, Severity.WARNING, "told to")]

    def close(self) -> None:
        pass


def two() -> tuple[Sequence[MonitoredDevice], Sequence[str]]:
    """Two devices, and a reason why there is no third."""
    return [FakeDevice(0), FakeDevice(1)], ["nvidia: there is no driver"]


def none() -> tuple[Sequence[MonitoredDevice], Sequence[str]]:
    raise DeviceError("nothing is here")
