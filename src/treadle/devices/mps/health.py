"""What an MPS daemon may be, what is found out about it, and what can go wrong with it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from treadle.devices.device import DeviceError


class MpsError(DeviceError):
    """MPS does not do as it is told; the text says what was asked and what came."""


class MpsTimeoutError(MpsError):
    """A control command was not answered in time. Its program was ended."""


class MpsRefusedError(MpsError):
    """The daemon answers that it will not, or in words that nobody expects."""


class MpsState(enum.StrEnum):
    """Where a daemon is in its life."""

    ABSENT = "absent"
    """Never started."""
    STARTING = "starting"
    RUNNING = "running"
    HUNG = "hung"
    """Its process lives and does not answer. A restart helps, by force."""
    FAULTED = "faulted"
    """A client's fault has taken a server: it takes nobody new until its clients have ended."""
    ENDED = "ended"
    """It was ended, or has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsServer:
    """One of a daemon's servers: a process with a context on the GPUs, for one user's clients."""

    pid: int
    status: str
    """In the daemon's words, such as ``ACTIVE``; empty where the driver tells none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsClient:
    """A process that works through a server."""

    pid: int
    """As the daemon says it: a client of another pid namespace has another number there."""
    server: int
    """The server's pid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsHealth:
    """What a check has found."""

    state: MpsState
    reason: str
    """In words, for a person."""
    pid: int | None = None
    """The control daemon's, while there is one."""
    servers: tuple[MpsServer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsTimeouts:
    """How long is waited for what, in seconds."""

    start: float = 20.0
    """From the daemon's start to its first answer."""
    command: float = 5.0
    """For each command, from the moment that it has its turn."""
    end: float = 5.0
    """For each of: to quit when told so, to end by SIGTERM, to end by SIGKILL."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)} s; allowed: above 0")
