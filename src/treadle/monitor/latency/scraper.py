"""Reads every followed server's page in turn, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import aiohttp

from treadle.monitor.latency.address import LatencyAddress
from treadle.monitor.latency.fetch import Limits, fetch, open_session
from treadle.monitor.latency.lines import PageError
from treadle.monitor.latency.source import LatencySource
from treadle.types import LatencyWindow

SCRAPE_SECONDS = 1.0


class LatencyScraper:
    """The latencies of tasks whose servers tell them. Safe to call from any thread."""

    def __init__(
        self, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._clock = limits or Limits(), clock
        self._lock = threading.Lock()
        self._sources: dict[str, LatencySource] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="latencies", daemon=True)
        self._thread.start()

    def follow(
        self,
        task: str,
        address: LatencyAddress,
        objective_seconds: float,
        *,
        scrape_seconds: float = SCRAPE_SECONDS,
    ) -> None:
        """Read a task's page from now on; instead of another one, if it has one.

        Raises:
            ValueError: If ``scrape_seconds`` is not above 0.
        """
        if not scrape_seconds > 0:
            raise ValueError(f"a page is read every so many seconds, not {scrape_seconds:g}")
        self.forget(task)
        source = LatencySource(address, objective_seconds)
        with self._lock:
            self._sources[task] = source
        self._later(self._begin(task, source, scrape_seconds))

    def forget(self, task: str) -> None:
        """Read a task's page no more."""
        with self._lock:
            self._sources.pop(task, None)
        self._later(self._end(task))

    def latest(self, task: str, *, launches: int | None = None) -> LatencyWindow:
        """The newest that is known of a task; ``launches``: what it has launched so far."""
        now = self._clock()
        with self._lock:
            source = self._sources.get(task)
        if source is None:
            return LatencyWindow(at=now, reason="it has no latency address")
        return source.latest(now, launches)

    def close(self) -> None:
        """End every read."""
        if not self._loop.is_closed() and self._thread.is_alive():
            self._later(self._end_all()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _later(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Have it done on the thread's loop, in the order of the calls, without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _begin(self, task: str, source: LatencySource, scrape_seconds: float) -> None:
        if self._session is None:
            self._session = open_session(self._limits)
        self._tasks[task] = self._loop.create_task(
            self._follow(self._session, source, scrape_seconds)
        )

    async def _end(self, task: str) -> None:
        if (running := self._tasks.pop(task, None)) is not None:
            running.cancel()
            await asyncio.wait([running])

    async def _end_all(self) -> None:
        for task in list(self._tasks):
            await self._end(task)
        if self._session is not None:
            await self._session.close()

    async def _follow(
        self, session: aiohttp.ClientSession, source: LatencySource, scrape_seconds: float
    ) -> None:
        due = self._loop.time()
        while True:
            asked = self._clock()
            try:
                scrape = await fetch(session, source.address, self._limits)
            except PageError as error:
                source.missing(str(error), asked)
            else:
                source.scraped(scrape, asked)
            now = self._loop.time()
            due = max(due + scrape_seconds, now)
            await asyncio.sleep(due - now)
