"""Where the load comes from: this process."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from treadle.bench.arrivals import Schedule
from treadle.bench.loadtest.sender import CheckedSender, ModelBodies
from treadle.bench.openloop import Hopeless, Recording, drive
from treadle.bench.timer import KernelTimer
from treadle.client.node import NodeClient

_SPARE_SECONDS = 1.0
"""After the last request may have timed out."""
_NO_URL = "http://treadle"


class Target(Struct, frozen=True, kw_only=True):
    """Where the load goes, and what it is."""

    socket: Path | None
    """A node's local socket; None: ``url``."""
    url: str
    connections: int
    """At most so many at a time, for each process."""
    timeout_seconds: float
    models: dict[str, ModelBodies]

    def client(self) -> NodeClient:
        """A client of the server."""
        url = _NO_URL if self.socket else self.url
        return NodeClient(self.socket, url, connections=self.connections)


class Generator(Protocol):
    """Sends schedules, one after the other."""

    async def run(self, schedule: Schedule, hopeless: Hopeless | None) -> Recording: ...


class LocalGenerator:
    """A generator in this process; its connections stay open between runs."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def __aenter__(self) -> Self:
        self._client = self._target.client()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def run(
        self, schedule: Schedule, hopeless: Hopeless | None, zero: float | None = None
    ) -> Recording:
        """Send a schedule; ``zero`` as ``drive`` takes it."""
        timeout = self._target.timeout_seconds
        send = CheckedSender(self._client, self._target.models, timeout)
        with KernelTimer() as timer:
            return await drive(
                schedule, send, timer, timeout + _SPARE_SECONDS, zero=zero, hopeless=hopeless
            )
