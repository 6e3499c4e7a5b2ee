"""Tasks beside those that answer callers: none is forgotten, and none fails unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from treadle.errors import TreadleError

_T = TypeVar("_T")
_AGAIN_SECONDS = 1.0
_log = logging.getLogger("treadle.jobs")


class Background:
    """Tasks that live as long as their owner at most."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run ``work`` beside all else.

        An error that nobody thought of is logged; any other is for who waits for it.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """End all of them, and what they start meanwhile."""
        while tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            # One may have been about to swallow that: it is told again.
            await asyncio.wait(tasks, timeout=_AGAIN_SECONDS)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, TreadleError):
            _log.error("this was not expected", exc_info=error)
