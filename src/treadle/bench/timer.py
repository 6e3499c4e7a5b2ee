"""A timer finer than the event loop's, which rounds to milliseconds."""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import time
from types import TracebackType
from typing import Protocol, Self

_CLOCK_MONOTONIC = 1
_ABSOLUTE_TIME = 1


class Timer(Protocol):
    """A clock that can be waited for. Seconds, monotonic."""

    def now(self) -> float: ...

    async def until(self, when: float) -> None:
        """Return at ``when``, or at once if that is past."""
        ...


class _Span(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSetting(ctypes.Structure):
    _fields_ = (("interval", _Span), ("value", _Span))


class KernelTimer:
    """Linux' ``timerfd`` on the event loop, late by some ten microseconds on an idle core.

    Used as a context manager, while a loop runs. One coroutine may wait at a time.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._fired: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        self._loop.add_reader(self._fd, self._on_fired)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def now(self) -> float:
        return time.monotonic()

    async def until(self, when: float) -> None:
        fraction, whole = math.modf(when)
        setting = _TimerSetting(_Span(0, 0), _Span(int(whole), int(fraction * 1e9)))
        self._fired = self._loop.create_future()
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE_TIME, ctypes.byref(setting), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        await self._fired

    def _on_fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew after it had fired
            return
        if self._fired is not None and not self._fired.done():
            self._fired.set_result(None)
