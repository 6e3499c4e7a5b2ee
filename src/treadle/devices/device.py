"""What every device offers to be seen by, whoever made it.

An implementation maps its vendor's errors to those here, and nowhere else are they known.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from treadle.errors import TreadleError


class DeviceError(TreadleError):
    """A device does not answer as it should; the text says what was asked and what came."""


class DeviceGoneError(DeviceError):
    """The device has fallen off the bus, or was taken away. It will not come back by itself."""


class DeviceKind(enum.StrEnum):
    """Who implements a device."""

    NVIDIA = "nvidia"
    CPU = "cpu"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What does not change while the device is there."""

    uuid: str
    index: int
    name: str
    kind: DeviceKind
    cores: int
    """Streaming multiprocessors, or CPU cores that this process may use."""
    memory_bytes: int
    driver: str = ""
    """Version of the driver and, after a slash, of CUDA; empty where there is none."""
    partition: str = ""
    """MIG: ``off``, or the profiles of its instances; empty where the device knows none."""
    bus_id: str = ""
    numa_node: int | None = None
    host_cores: tuple[int, ...] = ()
    """CPU cores near the device."""
    power_limit_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to share, bound or move work: whether it works here, and why not."""

    name: str
    available: bool
    reason: str
    """In words, for a person; for one that is available, how it was found out."""


@dataclass(frozen=True, slots=True)
class Link:
    """A connection to another device."""

    peer: str
    """UUID."""
    kind: str
    """``NVLink x18``, ``same PCIe switch``, ``same host`` and so on."""


class Reading(NamedTuple):
    """One timed sample. ``value`` is None where there is none, for ``reason``."""

    metric: str
    """A name from ``METRICS``."""
    value: float | None
    sampled_at: float
    """Monotonic seconds: the end of the window, or the moment."""
    window_seconds: float
    """Over how long the value is a mean; 0 for a moment and for counters."""
    reason: str = ""


class Severity(enum.StrEnum):
    """How much an event matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Something that happened, rather than a figure."""

    at: float
    """Monotonic seconds."""
    device: str
    """UUID."""
    kind: str
    """``xid``, ``ecc``, ``throttle-start``, ``throttle-end``, ``gone``, ``partition``,
    ``process-start``, ``process-end``, ``source-failed``, ``source-back``."""
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process with a context on a device."""

    pid: int | None
    """In this process's pid namespace; None for a process of another one."""
    name: str
    memory_bytes: int | None
    sm_activity: float | None
    reason: str = ""
    """Why a figure is None."""


class Source(Protocol):
    """A group of figures that are read together, by one call that costs what it costs."""

    @property
    def name(self) -> str:
        """Such as ``nvml.power-samples``: shown with every figure."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def refresh_seconds(self) -> float:
        """How often what it reads really changes: to ask more often is waste."""
        ...

    @property
    def cost_seconds(self) -> float:
        """CPU time that a read usually takes. The monitor begins with it, and measures."""
        ...

    def read(self) -> Sequence[Reading]:
        """Read now: one or more readings of each of its metrics, the oldest first.

        Raises:
            DeviceGoneError: If the device is gone.
            DeviceError: If the source fails as a whole. A figure that is missing by itself is a
                reading without a value.
        """
        ...


class MonitoredDevice(Protocol):
    """A device as the monitor sees it. All calls may block, and belong to one thread."""

    @property
    def info(self) -> DeviceInfo: ...

    def mechanisms(self) -> Sequence[Mechanism]:
        """Every mechanism that treadle knows, available or not."""
        ...

    def links(self) -> Sequence[Link]: ...

    def sources(self) -> Sequence[Source]:
        """What can be read, each in the cheapest way that is not stale."""
        ...

    def processes(self) -> Sequence[DeviceProcess]:
        """Who has a context on it.

        Raises:
            DeviceError: If that cannot be told.
        """
        ...

    def events(self) -> Sequence[DeviceEvent]:
        """What has happened since the last call."""
        ...

    def close(self) -> None: ...
