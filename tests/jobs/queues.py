"""A queue with real supervisors and a CPU that is as large as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treadle.programs.attempt import MARK
from treadle.programs.holding import Gatekeeper, queue_name
from treadle.programs.jobs import Caller, Jobs
from treadle.programs.leftovers import end_marked
from treadle.programs.limits import HostLimits
from treadle.programs.spec import Job, JobSpec, Submission
from treadle.programs.starting import Starter
from treadle.programs.store import Store
from treadle.schedule.place import Room
from treadle.types import TaskState

from .supervisor.harness import DEADLINE_SECONDS, PATH, until

GIB = 1 << 30
ME = Caller(uid=os.geteuid(), user="me", pid=os.getpid(), owner=True)
OVER = [state for state in TaskState if state.over]


class Queue:
    """One life of a queue; another on the same folder goes on with it."""

    def __init__(
        self,
        folder: Path,
        cores: float = 16,
        keep: int = 10_000,
        gatekeeper: Gatekeeper | None = None,
        reserve_after_seconds: float = 1e9,
        limits: HostLimits | None = None,
    ) -> None:
        self.folder = folder
        self.store = Store(folder / "jobs.db")
        rooms = [Room("cpu", False, 64 * GIB, cores, 64 * GIB, cores)]
        self.starter = Starter(folder / "turnstiles", folder, limits=limits)
        self.jobs = Jobs(
            self.store,
            folder,
            self.starter,
            gatekeeper or Gatekeeper(folder / "turnstiles"),
            lambda: rooms,
            keep,
            reserve_after_seconds,
        )
        self.seen: list[Job] = []
        self._closed = False

    async def submit(
        self, *command: str, caller: Caller = ME, array: Sequence[int] = (), **fields: Any
    ) -> list[Job]:
        """Queue ``sh -c`` with one word, or a command of several."""
        words = ("sh", "-c", command[0]) if len(command) == 1 else command
        fields = {"env": {"PATH": PATH}, "grace_seconds": DEADLINE_SECONDS, **fields}
        spec = JobSpec(command=words, **fields)
        jobs = await self.jobs.submit(Submission(job=spec, array=tuple(array)), caller)
        self.seen += jobs
        return jobs

    async def one(self, *command: str, **fields: Any) -> int:
        """Queue one job; returns its number."""
        (job,) = await self.submit(*command, **fields)
        return job.id

    async def over(self, number: int) -> Job:
        """Wait until a job is over."""
        job = await self.jobs.wait(number, DEADLINE_SECONDS)
        assert job.state.over, (job.state, self.jobs.told(job)["reason"])
        return job

    async def outcome(self, number: int) -> tuple[TaskState, str]:
        """How a job ended, and why."""
        job = await self.over(number)
        return job.state, job.reason

    async def run(self, *command: str, **fields: Any) -> Job:
        """Run a job to its end."""
        return await self.over(await self.one(*command, **fields))

    async def comes_to(self, number: int, state: TaskState) -> Job:
        """Wait until a job is in a state."""
        job = await self.jobs.get(number)
        try:
            await until(lambda: job.state is state, f"job {number} is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {job.state}: {job.reason}") from None
        return job

    async def states(self, number: int) -> list[str]:
        """The states that a job has been in."""
        return [state for _, state, _ in await self.jobs.history(number)]

    def hold_disk(self) -> threading.Event:
        """Let nothing be written until the event is set."""
        gate = threading.Event()
        self.store.write(lambda _: gate.wait(DEADLINE_SECONDS))
        return gate

    async def fill_disk(self) -> None:
        """Let nothing be written from now on, as if there were no room."""

        def fill(connection: sqlite3.Connection) -> None:
            for what in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(
                    f"CREATE TEMP TRIGGER full_{what} BEFORE {what} ON job "
                    "BEGIN SELECT disk_is_full(); END"
                )

        await self.store.write(fill)

    async def empty_disk(self) -> None:
        """Let everything be written again."""

        def empty(connection: sqlite3.Connection) -> None:
            for what in ("INSERT", "UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER full_{what}")

        await self.store.write(empty)

    async def close(self) -> None:
        """Let go of what runs."""
        if not self._closed:
            self._closed = True
            await self.jobs.close()

    def mark(self, job: Job) -> str:
        """The variable that the processes of a job's newest attempt have."""
        return f"{MARK}={self.starter.mark(job)}"

    async def clear(self) -> None:
        """End everything, also what was about to be started."""
        await self.close()
        for lock in self.folder.glob("*/*/lock"):
            await asyncio.to_thread(self._end, lock)

    def _end(self, lock: Path) -> None:
        """End an attempt, until nobody watches it any more."""
        *_, number, attempt, _ = lock.parts
        with contextlib.suppress(FileNotFoundError), lock.open() as file:  # one that has ended
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    end_marked(f"{MARK}={number}.{attempt}.{queue_name(self.folder)}")
                else:
                    return
