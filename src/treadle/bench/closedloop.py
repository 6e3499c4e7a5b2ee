"""A fixed number of clients, each of which waits for its answer before it asks again.

Such a load cannot overrun a server, so it finds out what the server can do; how long requests
would wait under a given load it cannot tell.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from treadle.bench.openloop import Send


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRun:
    """What a closed loop came to."""

    completed: int
    """Requests answered with success."""
    refused: int
    failed: int
    seconds: float
    """From the first request to the last answer."""

    @property
    def requests_per_second(self) -> float:
        return self.completed / self.seconds


async def run_closed(send: Send, models: Iterator[str], clients: int) -> ClosedRun:
    """Send requests to ``models`` in order, ``clients`` at a time, until there are no more."""
    completed = refused = failed = 0

    async def client() -> None:
        nonlocal completed, refused, failed
        for model in models:
            try:
                status = await send(model)
            except OSError:
                failed += 1
                continue
            if status == HTTPStatus.OK:
                completed += 1
            elif status == HTTPStatus.SERVICE_UNAVAILABLE:
                refused += 1
            else:
                failed += 1

    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return ClosedRun(
        completed=completed,
        refused=refused,
        failed=failed,
        seconds=time.monotonic() - started,
    )


def in_proportion(proportions: Mapping[str, float], enough: Callable[[], bool]) -> Iterator[str]:
    """Name models in the given proportions, evenly interleaved.

    The sequence ends when ``enough`` says so, but only after whole periods of the rarest model.
    A cut in the middle of one would misstate what the mix costs.
    """
    rarest = min(proportions, key=lambda name: proportions[name])
    turns = [(0.0, name) for name in sorted(proportions)]
    first = True
    while True:
        when, name = turns[0]
        if name == rarest:
            if not first and enough():
                return
            first = False
        heapq.heapreplace(turns, (when + 1 / proportions[name], name))
        yield name


def for_seconds(seconds: float) -> Callable[[], bool]:
    """A condition that holds once ``seconds`` have passed from now on."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
