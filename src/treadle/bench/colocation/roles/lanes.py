"""A queue of work on a device, and when what was put there has finished."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

_MILLISECONDS = 1e3


class Lane(Protocol):
    """Work in order on one device. Times are of ``time.monotonic()``, in seconds."""

    def use(self) -> AbstractContextManager[Any]:
        """Put what is launched inside on this lane."""
        ...

    def close(self) -> None:
        """Remember what has been launched so far."""
        ...

    def finished(self) -> bool:
        """Whether what ``close`` remembered has finished; never blocks."""
        ...

    def stamp(self) -> Any:
        """A mark between two pieces of work."""
        ...

    def reached(self, stamp: Any) -> float:
        """Wait until the device has passed a stamp, and say when it did."""
        ...

    def drain(self) -> None:
        """Wait until everything has finished."""
        ...

    def between(self, first: Any, second: Any) -> float:
        """Seconds that the device took between two stamps that it has passed."""
        ...


def open_lane(device: str) -> Lane:
    """A lane on ``cuda`` or ``cpu``."""
    return CudaLane() if device == "cuda" else CpuLane()


class CpuLane:
    """Everything has finished when its call returns."""

    def use(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def close(self) -> None: ...

    def finished(self) -> bool:
        return True

    def stamp(self) -> Any:
        return time.monotonic()

    def reached(self, stamp: Any) -> float:
        return float(stamp)

    def drain(self) -> None: ...

    def between(self, first: Any, second: Any) -> float:
        return float(second - first)


class CudaLane:
    """A stream of its own. Stamps are events; their times are the device's own."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self.stream = self._cuda.Stream()
        self._last = self._cuda.Event()
        self._anchor = self._cuda.Event(enable_timing=True)
        self._anchor_seconds = 0.0
        self.drain()

    def use(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._cuda.stream(self.stream)
        return context

    def close(self) -> None:
        self._last.record(self.stream)

    def finished(self) -> bool:
        return bool(self._last.query())

    def stamp(self) -> Any:
        event = self._cuda.Event(enable_timing=True, blocking=True)
        event.record(self.stream)
        return event

    def reached(self, stamp: Any) -> float:
        stamp.synchronize()
        return self._anchor_seconds + float(self._anchor.elapsed_time(stamp)) / _MILLISECONDS

    def drain(self) -> None:
        """Also ties the device's clock to the host's anew: the queue is empty now."""
        self.stream.synchronize()
        self._anchor.record(self.stream)
        self._anchor.synchronize()
        self._anchor_seconds = time.monotonic()

    def between(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / _MILLISECONDS
