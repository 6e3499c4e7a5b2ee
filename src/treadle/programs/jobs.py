"""What callers may ask about jobs: submit, look, wait, cancel, hold."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from treadle.errors import (
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from treadle.programs import table
from treadle.programs.background import Background
from treadle.programs.holding import Gatekeeper
from treadle.programs.longkernels import LongKernels
from treadle.programs.retention import Retention
from treadle.programs.runner import Runner
from treadle.programs.spawner import Spawner
from treadle.programs.spec import MOST_NUMBER, Job, JobSpec, Submission
from treadle.programs.starting import Starter
from treadle.programs.store import Store
from treadle.schedule.place import Room, cannot_ever
from treadle.types import Plan, TaskState

USUALLY_KEPT = 10_000
"""Jobs that are over and can still be looked at."""
USUALLY_RESERVED_AFTER_SECONDS = 600.0
"""For a job that has waited so long, devices are kept free."""
_QUEUED_AT_ONCE = 100
"""Jobs of an array between two moments for others."""
_COMING_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks for something."""

    uid: int
    user: str = ""
    pid: int | None = None
    owner: bool = False
    """Whether this is the node's own user, or root, or holds its token: may act on all jobs."""


class Jobs:
    """The jobs of a node."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        starter: Starter,
        gatekeeper: Gatekeeper,
        rooms: Callable[[], Sequence[Room]],
        keep: int = USUALLY_KEPT,
        reserve_after_seconds: float = USUALLY_RESERVED_AFTER_SECONDS,
    ) -> None:
        """Prepare; see ``Runner`` and ``Retention``."""
        self._store, self._starter, self._rooms = store, starter, rooms
        self._background = Background()
        self._spawner = Spawner()
        self._runner = Runner(
            store,
            folder,
            starter,
            gatekeeper,
            rooms,
            self._background,
            self._spawner,
            reserve_after_seconds,
        )
        self._long_kernels = LongKernels(gatekeeper, self._runner)
        self._retention = Retention(store, folder, keep, self._needed)

    async def start(self) -> None:
        """Take up what an earlier node has left."""
        await self._runner.start()
        self._background.spawn(self._runner.pauses.take_up())
        self._background.spawn(self._long_kernels.run())
        self._background.spawn(self._retention.run())

    def drain(self) -> None:
        """Start nothing more: the node is about to end."""
        self._runner.drain()

    async def close(self) -> None:
        """Let go of what runs: it goes on."""
        await self._background.close()
        await self._runner.pauses.close()
        await asyncio.to_thread(self._spawner.close)
        await asyncio.to_thread(self._store.close)

    def log_files(self, number: int, attempt: int) -> list[Path]:
        """Where the output of an attempt at a job is, the older file first."""
        folder = self._runner.attempt_folder(number, attempt)
        return [folder / "log.1", folder / "log"]

    async def submit(self, submission: Submission, caller: Caller) -> list[Job]:
        """Queue a job, or the jobs of an array. They are on the disk when this returns.

        Raises:
            InvalidRequestError: If a job it is to wait for is not there, or it never could start.
            ForbiddenError: If the node cannot run jobs of that user.
            UnavailableError: If the database cannot be written.
        """
        spec = submission.job
        if problem := self._starter.why_not(caller):
            raise ForbiddenError(problem)
        rooms = self._rooms()
        need = self._starter.need(spec, rooms, caller.uid)
        if problem := cannot_ever(need, [room for room in rooms if room.is_gpu == bool(need.gpus)]):
            raise InvalidRequestError(f"it can never start here: {problem}")
        specs = [replace(spec, array_index=index) for index in submission.array] or [spec]
        # Who hangs up meanwhile leaves jobs that are on the disk: they have to be queued, too.
        return await asyncio.shield(self._background.spawn(self._queue(specs, caller)))

    async def _queue(self, specs: Sequence[JobSpec], caller: Caller) -> list[Job]:
        after, now = specs[0].after, time.time()

        def insert(connection: sqlite3.Connection) -> tuple[list[Job], dict[int, TaskState]]:
            known = table.states_of(connection, after)
            if unknown := [number for number in after if number not in known]:
                raise InvalidRequestError(
                    f"after: there is no job {unknown[0]}; allowed: jobs that were submitted "
                    "earlier"
                )
            jobs = table.insert(
                connection, specs, uid=caller.uid, user=caller.user, peer_pid=caller.pid, now=now
            )
            return jobs, known

        jobs, known = await self._store.write(insert)
        for job in jobs:
            self._runner.live.add(job)
        for place, job in enumerate(jobs, start=1):
            await self._runner.queue(job, known)
            if not place % _QUEUED_AT_ONCE:
                await asyncio.sleep(0)
        self._runner.look()
        return jobs

    async def get(self, number: int) -> Job:
        """A job, over or not.

        Raises:
            NotFoundError: If there is none of that number.
        """
        if (job := self._runner.live.get(number)) is not None:
            return job
        found = None
        if number <= MOST_NUMBER:
            found = await self._store.read(lambda connection: table.find(connection, number))
        if found is None:
            raise NotFoundError(f"there is no job {number}")
        return found

    async def newest(
        self,
        *,
        states: Sequence[str] = (),
        before: int | None = None,
        uid: int | None = None,
        limit: int,
    ) -> list[Job]:
        """The newest jobs, the newest first."""
        live = self._runner.live
        found = await self._store.read(
            lambda connection: table.newest(
                connection, states=states, before=before, uid=uid, limit=limit
            )
        )
        return [live.get(job.id) or job for job in found]

    async def history(self, number: int) -> list[tuple[float, str, str]]:
        """When a job came into each state, and why."""
        return await self._store.read(lambda connection: table.history(connection, number))

    def told(self, job: Job) -> dict[str, Any]:
        """What the API says of a job."""
        told = job.told()
        if job.id in self._runner.waiting:
            told["reason"] = self._runner.waiting.why(job)
        return told

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state in which they are not over."""
        found = Counter(str(job.state) for job in self._runner.places)
        if waiting := len(self._runner.waiting):
            found[str(TaskState.QUEUED)] = waiting
        return dict(found)

    def long_kernels(self) -> dict[tuple[str, str], int]:
        """How many kernels ran for too long, by GPU and by what was to be done."""
        return dict(self._long_kernels.counts)

    def overview(self, most: int) -> dict[str, list[dict[str, Any]]]:
        """What has a place, and what waits and why: the most urgent, at most so many of each."""

        def first(chosen: Iterable[Job]) -> list[dict[str, Any]]:
            jobs = heapq.nsmallest(most, chosen, key=lambda job: (job.priority, job.id))
            return [self._brief(job) for job in jobs]

        return {"placed": first(self._runner.places), "waiting": first(self._runner.waiting)}

    def _brief(self, job: Job) -> dict[str, Any]:
        waits = job.id in self._runner.waiting
        return {
            "id": job.id,
            "name": job.name,
            "user": job.user or str(job.uid),
            "priority": job.spec.priority,
            "state": str(job.state),
            "reason": self._runner.waiting.why(job) if waits else job.reason,
            "devices": job.devices,
            "since": job.submitted_at if waits else job.started_at,
            "service": job.spec.service.partition("@")[0],
        }

    async def wait(self, number: int, seconds: float) -> Job:
        """Wait until a job is over, at most so long.

        Raises:
            NotFoundError: If there is none of that number.
        """
        deadline = time.monotonic() + seconds
        while not (job := await self.get(number)).state.over or number in self._runner.live:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if number not in self._runner.live:  # it has come or gone since it was looked for
                await asyncio.sleep(min(left, _COMING_SECONDS))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._runner.live.over(number).wait()
        return job

    async def cancel(self, number: int, caller: Caller) -> Job:
        """Have a job ended, or never started. One that is over stays what it is.

        Raises:
            NotFoundError: If there is none of that number.
            ForbiddenError: If it is somebody else's.
            UnavailableError: If that could not be written; it is done nevertheless, unless the
                node is killed before it can be.
        """
        job = await self._own(number, caller)
        if job.state.over or job.cancelled:
            return job
        job.cancelled = True
        reason = f"cancelled by {caller.user or caller.uid}"
        if job.id in self._runner.waiting:
            self._runner.finish(job, TaskState.CANCELLED, reason)
        else:
            job.reason = reason
            self._runner.pass_on(job)
        await self._save(job)
        return job

    async def end(self, number: int, reason: str) -> bool:
        """Have a job's attempt ended; that counts as its failure, not as cancelled.

        Returns:
            Whether its supervisor was told.

        Raises:
            NotFoundError: If there is none of that number.
        """
        return self._runner.end(await self.get(number), reason)

    async def execute(self, plan: Plan) -> None:
        """Do what a plan says: start, pause, resume, stop. What has gone on meanwhile stays."""
        await self._runner.execute(plan)

    async def again(self, job: Job, reason: str) -> None:
        """Have what runs of a job ended, and queue it anew."""
        self._runner.again(job, reason)

    def on_device(self, uuid: str) -> list[Job]:
        """The jobs that have a place on a device."""
        return self._runner.places.on(uuid)

    def instances(self) -> list[Job]:
        """The jobs that are lives of services, and not over."""
        return self._runner.live.instances()

    async def hold(self, number: int, caller: Caller, *, on: bool) -> Job:
        """Pause a job, or let it go on. One in the queue is not started while it is held.

        Raises:
            NotFoundError: If there is none of that number.
            ForbiddenError: If it is somebody else's.
            InvalidRequestError: If it is over.
            UnavailableError: As for ``cancel``.
        """
        job = await self._own(number, caller)
        if job.state.over:
            raise InvalidRequestError(f"job {number} is over: {job.state}")
        if job.held != on:
            job.held = on
            if job.id in self._runner.waiting:
                self._runner.waiting.look_again(job)
                self._runner.look()
            else:
                self._runner.pass_on(job)
            await self._save(job)
        return job

    async def _own(self, number: int, caller: Caller) -> Job:
        job = await self.get(number)
        if not caller.owner and job.uid != caller.uid:
            raise ForbiddenError(f"job {number} is of user {job.user or job.uid}")
        return job

    async def _save(self, job: Job) -> None:
        if not await self._runner.live.save(job):
            raise UnavailableError(
                f"job {job.id}: the database cannot be written now; what was asked for is done and "
                "will be written, unless the node is killed before"
            )

    def _needed(self) -> set[int]:
        """The jobs that others wait for."""
        return {number for job in self._runner.live for number in job.spec.after}
