"""What lies in the shared memory, and what travels beside it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from treadle.devices.device import DeviceEvent, DeviceInfo

GATE = "turnstile"
"""The source of the figures that come from a turnstile's page."""
EVENTS = "list of events and processes"
"""What a device is asked for beside its figures: it can hang, too."""


class Series(Struct, frozen=True):
    """One metric of one device, and where its ring lies."""

    device: str
    """UUID."""
    metric: str
    source: str
    interval_seconds: float
    """The least between two of its samples, which its ring is laid out for."""
    offset: int = 0
    capacity: int = 0


class SourceEntry(Struct, frozen=True):
    """A source as the helper begins to read it. At present: ``Reader.pace``."""

    device: str
    name: str
    interval_seconds: float
    """As planned from what its device claims, before anything is measured."""
    cost_seconds: float
    """As claimed."""
    metrics: tuple[str, ...]


class Directory(Struct, frozen=True):
    """All there is."""

    devices: tuple[DeviceInfo, ...]
    sources: tuple[SourceEntry, ...]
    series: tuple[Series, ...]
    reasons: tuple[str, ...] = ()
    """Why there are no other devices, for a person."""


class Setup(Struct, frozen=True):
    """The helper's only argument: what to look for, and how."""

    socket: int
    memory: int
    devices: str
    """``module:function`` that finds them, with ``=argument`` if it takes one."""
    turnstiles: str
    """The folder of their pages."""
    left_out: tuple[tuple[str, str], ...] = ()
    """UUID and name of sources that hang."""
    tick_seconds: float = 0.01


class Started(Struct, frozen=True, tag=True):
    """Helper to parent: the memory is laid out."""


class StartFailed(Struct, frozen=True, tag=True):
    """Helper to parent: it ends."""

    reason: str


class Happened(Struct, frozen=True, tag=True):
    """Helper to parent."""

    event: DeviceEvent


class Shared(Struct, frozen=True, kw_only=True):
    """What another program of the same user needs to look at a monitor's readings itself."""

    devices: str
    """Which devices the monitor was told to find."""
    pid: int
    """Of the process that watches the helper."""
    descriptor: int | None
    """Of the readings' memory in that process; None while there is none."""
    trouble: str
    reads: bool = True
    """Whether anything is monitored at all."""
    restarts: int = 0
    helper_pid: int | None = None
    left_out: tuple[SourceEntry, ...] = ()
    event_count: int = 0
    events: tuple[DeviceEvent, ...] = ()
    """Those after the one that was asked for."""


FromHelper = Started | StartFailed | Happened
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(FromHelper).decode
MAX_MESSAGE_BYTES = 1 << 16
