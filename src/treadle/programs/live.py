"""The jobs that are not over, or whose end is not on the disk yet."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Iterator

from treadle.errors import UnavailableError
from treadle.programs import table
from treadle.programs.background import Background
from treadle.programs.spec import Job
from treadle.programs.store import Store

_log = logging.getLogger("treadle.jobs")
_COMPLAIN_SECONDS = 10.0


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

    def over(self, number: int) -> asyncio.Event:
        """Set once a job that is here is over, and that is on the disk."""
        assert number in self._jobs
        return self._over.setdefault(number, asyncio.Event())

    def write(self, job: Job) -> asyncio.Future[None]:
        """Write a job as it is now."""
        written, now = copy.copy(job), time.time()
        return self._store.write(lambda connection: table.save(connection, written, now))

    def save(self, job: Job) -> asyncio.Task[bool]:
        """Write a job; whether the disk has taken it. If not, it is written again later."""
        writing = self.write(job)
        return self._background.spawn(self._saved(job, writing, is_over=job.state.over))

    async def save_again(self) -> None:
        """Write what the disk has not taken."""
        again = [self._jobs[number] for number in self._unsaved if number in self._jobs]
        if again:
            await asyncio.gather(*(self.save(job) for job in again))

    async def _saved(self, job: Job, writing: asyncio.Future[None], *, is_over: bool) -> bool:
        try:
            await writing
        except UnavailableError as error:
            self._unsaved.add(job.id)
            self._complain(error)
            return False
        self._unsaved.discard(job.id)
        if is_over and self._jobs.pop(job.id, None) is not None:
            if (event := self._over.pop(job.id, None)) is not None:
                event.set()
            self._on_over(job)
        return True

    def _complain(self, error: UnavailableError) -> None:
        now = time.monotonic()
        if now - self._complained_at > _COMPLAIN_SECONDS:
            self._complained_at = now
            _log.error("%s; what has happened is written as soon as that is possible", error)
