"""Where the load comes from: several processes, each of which sends every so many-th request."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Self

import uvloop

from treadle.bench.arrivals import Schedule
from treadle.bench.loadtest.generator import LocalGenerator, Target
from treadle.bench.openloop import Hopeless, Recording
from treadle.child import become_child
from treadle.errors import TreadleError

_LEAD_SECONDS = 0.3
"""From the orders to the schedule's zero, so that all have read theirs."""


class SpreadGenerator:
    """Several generators that act as one."""

    def __init__(self, target: Target, processes: int) -> None:
        self._target = target
        self._count = processes

    async def __aenter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_generate, args=(theirs, self._target, self._stop), daemon=True
            )
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)
        await self._gather()  # each says that it is there
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()  # they hold nothing
        for process in self._processes:
            await asyncio.to_thread(process.join)
        for end in self._ends:
            end.close()

    async def run(self, schedule: Schedule, hopeless: Hopeless | None) -> Recording:
        """Send a schedule.

        Raises:
            TreadleError: If one of the processes ends.
        """
        self._stop.clear()
        zero = time.monotonic() + _LEAD_SECONDS
        for number, end in enumerate(self._ends):
            end.send((schedule.part(number, self._count), hopeless, zero))
        return merge(schedule, await self._gather())

    async def _gather(self) -> list[Any]:
        try:
            return [await asyncio.to_thread(end.recv) for end in self._ends]
        except (EOFError, OSError):
            raise TreadleError("a process of the load generator has ended") from None


def merge(schedule: Schedule, parts: Sequence[Recording]) -> Recording:
    """Put the recordings of a schedule's parts together."""
    whole, count = Recording.empty(schedule), len(parts)
    for number, part in enumerate(parts):
        whole.sent[number::count] = part.sent
        whole.answered[number::count] = part.answered
        whole.status[number::count] = part.status
        whole.reasons.update({number + k * count: why for k, why in part.reasons.items()})
    stopped = [part.stopped for part in parts if part.stopped is not None]
    return replace(whole, stopped=min(stopped, default=None))


def _generate(end: Connection, target: Target, stop: Event) -> None:
    """Be one of the processes."""
    become_child()

    async def serve() -> None:
        async with LocalGenerator(target) as generator:
            end.send(None)
            while True:
                schedule, hopeless, zero = await asyncio.to_thread(end.recv)
                end.send(await generator.run(schedule, _or_stopped(hopeless, stop), zero))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _or_stopped(hopeless: Hopeless | None, stop: Event) -> Hopeless | None:
    """One that gives up for all is one for which all give up."""
    if hopeless is None:
        return None

    def told(recording: Recording, now: float) -> bool:
        if stop.is_set():
            return True
        if hopeless(recording, now):
            stop.set()
            return True
        return False

    return told
