"""A process that does what would hold up the event loop, and that a thread would not help with."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from treadle.child import become_child
from treadle.errors import UnavailableError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class HelperProcess:
    """Runs pure functions elsewhere. It is started when it is first needed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, function: Callable[_P, _T], *args: _P.args, **_: _P.kwargs) -> _T:
        """Call a function there; what it takes and returns must travel between processes.

        Raises:
            UnavailableError: If the process ends meanwhile.
        """
        if self._pool is None:
            # Spawned, not forked: a copy of this process would inherit its sockets and locks.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=become_child)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        except BrokenProcessPool as error:
            self._pool = None  # the next call starts another
            raise UnavailableError(
                "the process that reads large JSON bodies has ended; try again, or send binary "
                "tensor data",
                retry_after_seconds=1.0,
            ) from error

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
