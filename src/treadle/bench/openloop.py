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
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from treadle.bench.arrivals import Schedule
from treadle.bench.timer import Timer

NO_ANSWER = 0
"""Stands for the status code of a request that got none."""
TIMED_OUT = 1
"""The same for one whose sender did not wait any longer."""
WRONG = 2
"""The same for one that was answered with success, but with something else than was asked for."""
LEAD_SECONDS = 0.05
"""From the start of the run to the schedule's zero, so that the first arrival is not late."""
_LOOK_SECONDS = 0.2
"""How often is looked whether it is worth going on."""

Send = Callable[[str], Awaitable[int]]
"""Asks a model and returns the status code.

Raises OSError if the connection breaks, and may raise UnwantedError.
"""


class UnwantedError(Exception):
    """An answer that is not what was asked for, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What became of each arrival of a schedule. Seconds from the schedule's zero."""

    schedule: Schedule
    sent: NDArray[np.float64]
    """When it was really sent, NaN if it was not; shape ``[arrivals]``."""
    answered: NDArray[np.float64]
    """When its answer had been read, NaN if there was none; shape ``[arrivals]``."""
    status: NDArray[np.int64]
    """The answer's status code, or what stands for one; shape ``[arrivals]``."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why an arrival did not get what it asked for, by its number, where that is known."""
    stopped: float | None = None
    """When it was given up, if it was."""

    @classmethod
    def empty(cls, schedule: Schedule) -> Recording:
        """One in which nothing has happened yet."""
        count = len(schedule)
        return cls(
            schedule,
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.full(count, NO_ANSWER, np.int64),
        )

    @property
    def latencies(self) -> NDArray[np.float64]:
        """Seconds from when a request was due to its answer, NaN without one."""
        return self.answered - self.schedule.times

    @property
    def send_lags(self) -> NDArray[np.float64]:
        """Seconds by which the generator itself was late, NaN for what it did not send."""
        return self.sent - self.schedule.times


Hopeless = Callable[[Recording, float], bool]
"""Whether it is not worth going on, at so many seconds from the schedule's zero."""


async def drive(
    schedule: Schedule,
    send: Send,
    timer: Timer,
    drain_seconds: float,
    *,
    zero: float | None = None,
    hopeless: Hopeless | None = None,
) -> Recording:
    """Send a schedule and wait for the answers, but not for ever.

    Args:
        schedule: What to send when.
        send: Sends one request.
        timer: Says when.
        drain_seconds: How long to wait for answers after the last request was sent.
        zero: The timer's time at which the schedule begins; at once unless given.
        hopeless: Asked now and then; if it says so, the rest is given up.
    """
    recording = Recording.empty(schedule)
    begin = timer.now() + LEAD_SECONDS if zero is None else zero
    sending: set[asyncio.Task[None]] = set()
    working = [
        asyncio.create_task(_send_all(recording, send, timer, begin, sending, drain_seconds))
    ]
    if hopeless is not None:
        working.append(asyncio.create_task(_watch(recording, timer, begin, hopeless)))
    try:
        with _collector_paused():
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if not working[0].done():
            recording = replace(recording, stopped=timer.now() - begin)
    finally:
        left = [*working, *sending]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
    return recording


async def _send_all(
    recording: Recording,
    send: Send,
    timer: Timer,
    zero: float,
    sending: set[asyncio.Task[None]],
    drain_seconds: float,
) -> None:
    schedule = recording.schedule
    names = [schedule.models[index] for index in schedule.model_index]

    async def ask(number: int) -> None:
        recording.sent[number] = timer.now() - zero
        try:
            status = await send(names[number])
        except UnwantedError as error:
            status, recording.reasons[number] = error.status, error.reason
        except OSError as error:
            recording.reasons[number] = str(error)
            return
        recording.answered[number] = timer.now() - zero
        recording.status[number] = status

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


async def _watch(recording: Recording, timer: Timer, zero: float, hopeless: Hopeless) -> None:
    """Return once it is not worth going on."""
    while not hopeless(recording, timer.now() - zero):  # noqa: ASYNC110 (only time changes it)
        await asyncio.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from making the generator late."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
