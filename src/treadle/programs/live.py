"""The jobs that are not over, or whose end is not on the disk yet."""

from __future__ import annotations

import asyncio
import copy
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from treadle.errors import UnavailableError
from treadle.programs import table
from treadle.programs.background import Background
from treadle.programs.spec import Job
from treadle.programs.store import Store
from treadle.types import TaskState

_log = logging.getLogger("treadle.jobs")
_COMPLAIN_SECONDS = 10.0
_SAVED_AT_ONCE = 100


class Live:
    """Holds them, and writes them as they change; what the disk does not take, later."""

    def __init__(
        self, store: Store, background: Background, on_over: Callable[[Job], None]
    ) -> None:
        """Begin with none.

        Args:
            store: Takes them.
            background: Runs what waits for the disk.
            on_over: Told of a job whose end is on the disk.
        """
        self._store, self._background, self._on_over = store, background, on_over
        self._jobs: dict[int, Job] = {}
        self._instances: dict[int, Job] = {}
        self._over: dict[int, asyncio.Event] = {}
        self._unsaved: set[int] = set()
        self._complained_at = float("-inf")

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __contains__(self, number: int) -> bool:
        return number in self._jobs

    def __getitem__(self, number: int) -> Job:
        return self._jobs[number]

    def get(self, number: int) -> Job | None:
        """The job of that number, if it is here."""
        return self._jobs.get(number)

    def add(self, job: Job) -> None:
        """Hold a job that is on the disk."""
        self._jobs[job.id] = job
        if job.spec.service:
            self._instances[job.id] = job

    def instances(self) -> list[Job]:
        """Those that are lives of services."""
        return [*self._instances.values()]

    async def states(
        self, numbers: Sequence[int], known: Mapping[int, TaskState]
    ) -> dict[int, TaskState]:
        """The states of jobs as they are when this returns, and nobody else runs."""
        while True:
            # One that was running when somebody looked may have ended since: what is over is so
            # for ever, and what is live knows best.
            states = {n: state for n, state in known.items() if state.over}
            states |= {n: job.state for n in numbers if (job := self.get(n)) is not None}
            unknown = [n for n in numbers if n not in states]
            if not unknown:
                return states
            found = await self._store.read(lambda c, u=unknown: table.states_of(c, u))  # type: ignore[misc]
            # Forgotten is only what was over; had it failed, nobody would wait for it now.
            known = states | {n: found.get(n, TaskState.FINISHED) for n in unknown}

    def over(self, number: int) -> asyncio.Event:
        """Set once a job that is here is over, and that is on the disk."""
        assert number in self._jobs
        return self._over.setdefault(number, asyncio.Event())

    def write(self, *jobs: Job) -> asyncio.Future[None]:
        """Write jobs as they are now."""
        written, now = [copy.copy(job) for job in jobs], time.time()

        def save(connection: sqlite3.Connection) -> None:
            for job in written:
                table.save(connection, job, now)

        return self._store.write(save)

    def save(self, *jobs: Job) -> asyncio.Task[bool]:
        """Write jobs; whether the disk has taken them. If not, they are written again later."""
        over = [job for job in jobs if job.state.over]
        return self._background.spawn(self._saved(jobs, over, self.write(*jobs)))

    async def save_again(self) -> None:
        """Write what the disk has not taken."""
        again = [self._jobs[number] for number in self._unsaved if number in self._jobs]
        for begin in range(0, len(again), _SAVED_AT_ONCE):
            if not await self.save(*again[begin : begin + _SAVED_AT_ONCE]):
                break

    async def _saved(
        self, jobs: Sequence[Job], over: Sequence[Job], writing: asyncio.Future[None]
    ) -> bool:
        numbers = [job.id for job in jobs]
        try:
            await writing
        except UnavailableError as error:
            self._unsaved.update(numbers)
            self._complain(error)
            return False
        self._unsaved.difference_update(numbers)
        for job in over:
            self._instances.pop(job.id, None)
            if self._jobs.pop(job.id, None) is not None:
                if (event := self._over.pop(job.id, None)) is not None:
                    event.set()
                self._on_over(job)
        return True

    def _complain(self, error: UnavailableError) -> None:
        now = time.monotonic()
        if now - self._complained_at > _COMPLAIN_SECONDS:
            self._complained_at = now
            _log.error("%s; what has happened is written as soon as that is possible", error)
