"""The readings of a node's monitor, looked at where the node keeps them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.client.node import NodeClient
from treadle.devices.device import DeviceEvent
from treadle.errors import TreadleError
from treadle.monitor import AUTO, Limits, MonitorSnapshot
from treadle.monitor.directory import Shared
from treadle.monitor.ring import Reader, RingError, Samples, inode_of, open_of
from treadle.monitor.snapshot import recent, views

ASK_SECONDS = 2.0
"""How often a node that is well is asked what is beside the readings."""
_ASK_AGAIN_SECONDS = 0.25
"""The same while its helper is being started."""
_TIMEOUT_SECONDS = 0.5
_HANG_SECONDS = Limits().hang_seconds
_MOST_FAILURES = 5
_KEPT_EVENTS = 1000


class NoReadingsError(TreadleError):
    """A node's readings cannot be looked at: the text says why."""


class Readings(Protocol):
    """What a monitor tells, wherever it runs."""

    def snapshot(self) -> MonitorSnapshot: ...

    def history(self, uuid: str, metric: str, seconds: float = 60.0) -> Samples: ...

    def events(self, after: int = 0) -> tuple[int, Sequence[DeviceEvent]]: ...


def ask(path: str, socket: Path, seconds: float = _TIMEOUT_SECONDS) -> Any:
    """One answer of a node.

    Raises:
        ConnectionError: If there is none.
        TimeoutError: If it takes too long.
        TreadleError: If it refuses.
    """

    async def get() -> Any:
        async with NodeClient(socket) as client:
            return await client.get(path)

    async def in_time() -> Any:
        return await asyncio.wait_for(get(), seconds)

    return asyncio.run(in_time())


class NodeReadings:
    """A node's readings, as a ``Monitor`` tells them. Belongs to one thread."""

    def __init__(
        self,
        socket: Path,
        devices: str = AUTO,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Find the node and its readings.

        Args:
            socket: The node's local socket.
            devices: The choice of devices that is wanted; ``auto`` takes what the node reads.
            clock: Of the readings' time.

        Raises:
            NoReadingsError: If there is no node, or its readings cannot be used.
        """
        self._socket, self._wanted, self._clock = socket, devices, clock
        self._reader: Reader | None = None
        self._inode: int | None = None
        self._shared: Shared | None = None
        self._asked_at = float("-inf")
        self._failures = 0
        self._events: deque[DeviceEvent] = deque(maxlen=_KEPT_EVENTS)
        self._event_count = 0
        self._ask()

    def snapshot(self) -> MonitorSnapshot:
        """The newest readings of every device.

        Raises:
            NoReadingsError: If the node has ended, or its readings cannot be used any more.
        """
        now = self._clock()
        pause = ASK_SECONDS if self._is_current() else _ASK_AGAIN_SECONDS
        if now - self._asked_at >= pause:
            self._ask()
        shared, reader = self._shared, self._reader
        assert shared is not None
        trouble = self._trouble(shared, reader)
        return MonitorSnapshot(
            at=now,
            devices=views(reader, now, trouble, shared.left_out) if reader else (),
            reasons=reader.directory.reasons if reader else (),
            trouble=trouble,
            restarts=shared.restarts,
            helper_pid=shared.helper_pid,
            left_out=shared.left_out,
        )

    def history(self, uuid: str, metric: str, seconds: float = 60.0) -> Samples:
        """The samples of the last so many seconds, the oldest first; those without value too."""
        return recent(self._reader, uuid, metric, self._clock() - seconds)

    def events(self, after: int = 0) -> tuple[int, Sequence[DeviceEvent]]:
        """The newest events after so many, and how many there have been."""
        new = max(0, min(self._event_count - after, len(self._events)))
        return self._event_count, list(self._events)[len(self._events) - new :]

    def _is_current(self) -> bool:
        """Whether the memory that is looked at is still the one that the node's helper writes."""
        shared = self._shared
        if shared is None or shared.descriptor is None or self._inode is None:
            return False
        return inode_of(shared.pid, shared.descriptor) == self._inode

    def _trouble(self, shared: Shared, reader: Reader | None) -> str:
        if shared.trouble or reader is None:
            return shared.trouble or "the node's readings are being looked for"
        silent = self._clock() - reader.heartbeat
        if silent > _HANG_SECONDS:
            return f"the node's sampler has not moved for {silent:.1f} s"
        return ""

    def _ask(self) -> None:
        """Ask the node what there is, and look at other memory if need be."""
        self._asked_at = self._clock()
        try:
            answer = ask(f"/treadle/v1/monitor?after={self._event_count}", self._socket)
            shared = msgspec.convert(answer, Shared)
        except TimeoutError:  # it is busy: what it said before holds, its memory tells the rest
            if self._shared is None:
                raise NoReadingsError("the node does not answer") from None
            return
        except (ConnectionError, TreadleError, msgspec.ValidationError) as error:
            raise NoReadingsError(f"no readings from a node: {error}") from error
        if self._wanted not in ("", AUTO, shared.devices):
            raise NoReadingsError(f"the node reads other devices: {shared.devices}")
        never = shared.descriptor is None and shared.restarts and self._reader is None
        if not shared.reads or never:
            raise NoReadingsError(shared.trouble)
        self._take_events(shared)
        self._shared = shared
        if shared.descriptor is not None and not self._is_current():
            self._open(shared.pid, shared.descriptor)

    def _open(self, pid: int, descriptor: int) -> None:
        try:
            self._reader, self._inode = open_of(pid, descriptor)
        except RingError as error:
            self._failures += 1  # once may be chance: the helper has just been started again
            if self._failures >= _MOST_FAILURES:
                raise NoReadingsError(str(error)) from error
        else:
            self._failures = 0

    def _take_events(self, shared: Shared) -> None:
        if self._shared is not None and shared.pid != self._shared.pid:
            self._events.clear()
            self._event_count = 0  # another node, which counts from the beginning: ask again
        else:
            self._events += shared.events
            self._event_count = shared.event_count
