"""Sends every request at its time, whatever became of those before it.

A generator that waits for answers slows down with the server, and so hides the waiting that
its users would have had (coordinated omission). Here a late answer holds nothing back, and
latency counts from the time at which a request was due, not from when it was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treadle.bench.arrivals import Schedule
from treadle.bench.timer import Timer

NO_ANSWER = 0
"""Stands for the status code of a request that got none."""
LEAD_SECONDS = 0.05
"""From the start of the run to the schedule's zero, so that the first arrival is not late."""

Send = Callable[[str], Awaitable[int]]
"""Asks a model and returns the status code.

Raises OSError if the connection breaks.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What became of each arrival of a schedule. Seconds from the schedule's zero."""

    schedule: Schedule
    sent: NDArray[np.float64]
    """When it was really sent; shape ``[arrivals]``."""
    answered: NDArray[np.float64]
    """When its answer had been read, NaN if there was none; shape ``[arrivals]``."""
    status: NDArray[np.int64]
    """The answer's status code, or ``NO_ANSWER``; shape ``[arrivals]``."""

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Seconds from when a request was due to its answer, NaN without one."""
        return self.answered - self.schedule.times

    @property
    def send_lags(self) -> NDArray[np.float64]:
        """Seconds by which the generator itself was late."""
        return self.sent - self.schedule.times


async def drive(schedule: Schedule, send: Send, timer: Timer, drain_seconds: float) -> Recording:
    """Send a schedule and wait for the answers, but not for ever.

    Args:
        schedule: What to send when.
        send: Sends one request.
        timer: Says when.
        drain_seconds: How long to wait for answers after the last request was sent.
    """
    count = len(schedule)
    recording = Recording(
        schedule,
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.full(count, NO_ANSWER, np.int64),
    )
    sending: set[asyncio.Task[None]] = set()
    names = [schedule.models[index] for index in schedule.model_index]
    zero = timer.now() + LEAD_SECONDS

    async def ask(number: int) -> None:
        recording.sent[number] = timer.now() - zero
        with contextlib.suppress(OSError):
            status = await send(names[number])
            recording.answered[number] = timer.now() - zero
            recording.status[number] = status

    try:
        with _collector_paused():
            for number, due in enumerate(schedule.times.tolist()):
                if zero + due > timer.now():
                    await timer.until(zero + due)
                else:
                    await asyncio.sleep(0)  # late: let what was started before be sent
                task = asyncio.create_task(ask(number))
                sending.add(task)
                task.add_done_callback(sending.discard)
            if sending:
                await asyncio.wait(sending, timeout=drain_seconds)
    finally:
        left = list(sending)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    return recording


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from making the generator late."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
