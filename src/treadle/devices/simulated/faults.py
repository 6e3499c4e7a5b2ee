"""What goes wrong with a simulated GPU when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from treadle.devices.catalogue import GPU_SOURCES
from treadle.devices.device import DeviceError, DeviceGoneError, Reading


class Hang:
    """A source that does not answer, until it is released."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._released = threading.Event()

    def wait_until_entered(self, timeout_seconds: float) -> bool:
        """Whether a reader has run into it within that time."""
        return self._entered.wait(timeout_seconds)

    def release(self) -> None:
        """Let every reader go on, now and later."""
        self._released.set()

    def enter(self) -> None:
        """Block until it is released."""
        self._entered.set()
        self._released.wait()


class Faults:
    """The faults of one device, by name of the source. Safe to set from another thread.

    A source that there is not is a ``ValueError``.
    """

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}
        self._garbage: dict[str, float] = {}
        self._hanging: dict[str, Hang] = {}
        self._gone = ""

    @property
    def gone(self) -> str:
        """Why the device is gone; empty while it is there."""
        return self._gone

    def fail(self, source: str, text: str = "made to fail") -> None:
        """Let every read of a source raise ``DeviceError``."""
        self._failing[_known(source)] = text

    def garbage(self, source: str, value: float) -> None:
        """Let every figure of a source be ``value``: NaN, -1, 0xFFFFFFFF."""
        self._garbage[_known(source)] = value

    def hang(self, source: str) -> Hang:
        """Let every read of a source block until the returned ``Hang`` is released."""
        return self._hanging.setdefault(_known(source), Hang())

    def vanish(self, text: str = "it has fallen off the bus") -> None:
        """Let the device be gone, for good. Who hangs is let go, and finds it gone."""
        self._gone = text
        for hang in list(self._hanging.values()):
            hang.release()

    def heal(self, source: str) -> None:
        """End every fault of a source; releases who hangs."""
        self._failing.pop(source, None)
        self._garbage.pop(source, None)
        if hang := self._hanging.pop(source, None):
            hang.release()

    def check_there(self) -> None:
        """Raise if the device is gone."""
        if self._gone:
            raise DeviceGoneError(self._gone)

    def read(self, source: str, read: Callable[[], Sequence[Reading]]) -> Sequence[Reading]:
        """Read a source through its faults."""
        if hang := self._hanging.get(source):
            hang.enter()
        self.check_there()
        if text := self._failing.get(source):
            raise DeviceError(f"{source}: {text}")
        readings = read()
        if source in self._garbage:
            value = self._garbage[source]
            return [reading._replace(value=value, reason="") for reading in readings]
        return readings


def _known(source: str) -> str:
    if source not in GPU_SOURCES:
        raise ValueError(f"no source {source!r}; allowed: {', '.join(GPU_SOURCES)}")
    return source
