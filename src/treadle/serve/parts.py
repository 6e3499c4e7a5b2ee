"""An answer in parts, as the node sees it: what came of it, and whoever takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from treadle.errors import AbandonedError
from treadle.serve.tensors import Tensor


class Parts:
    """The parts of one answer that nobody has taken yet.

    Its worker sends a few and then waits until some are taken. If none is taken for too long,
    the request is given up: its worker must not be held for ever.
    """

    def __init__(
        self,
        answer: asyncio.Future[Any],
        stall_seconds: float,
        on_stall: Callable[[], None],
    ) -> None:
        """Begin.

        Args:
            answer: Set when no more parts will come, or to why they will not.
            stall_seconds: How long a part may lie untaken.
            on_stall: Called when one did; ``take`` raises from then on.
        """
        self._stall_seconds = stall_seconds
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._untaken: deque[list[Tensor]] = deque()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: AbandonedError | None = None
        self._answer = answer
        answer.add_done_callback(self._end)
        self.on_taken: Callable[[], None] | None = None
        """Told when a part has been taken, by what runs the request."""

    def put(self, part: list[Tensor]) -> None:
        """Add a part."""
        self._untaken.append(part)
        self._changed.set()
        if self._timer is None:
            self._timer = self._loop.call_later(self._stall_seconds, self._stall)

    async def take(self) -> list[Tensor] | None:
        """Wait for the next part; None after the last.

        Raises:
            RequestError: If there is no next part because the request has failed.
        """
        while not self._untaken:
            if self._stalled is not None:
                raise self._stalled
            if self._answer.done():
                self._answer.result()
                return None
            self._changed.clear()
            await self._changed.wait()
        part = self._untaken.popleft()
        self._stop_timer()
        if self._untaken:
            self._timer = self._loop.call_later(self._stall_seconds, self._stall)
        if self.on_taken is not None:
            self.on_taken()
        return part

    def drop(self) -> None:
        """Forget what nobody will take any more."""
        self._untaken.clear()
        self._stop_timer()

    def _end(self, answer: asyncio.Future[Any]) -> None:
        answer.exception()  # looked at: nobody may be taking parts any more
        self._changed.set()

    def _stall(self) -> None:
        self.drop()
        self._stalled = AbandonedError(
            f"no part of the answer was taken for {self._stall_seconds:g} s"
        )
        self._changed.set()
        self._on_stall()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
