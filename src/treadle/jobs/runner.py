"""Starts queued jobs through supervisors, follows them, and takes up what an earlier node left."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from treadle.errors import UnavailableError
from treadle.jobs import store as table
from treadle.jobs.attempt import Attempt, Ending, Fate, end_marked
from treadle.jobs.holding import Gatekeeper
from treadle.jobs.queue import Waiting
from treadle.jobs.spec import Job
from treadle.jobs.starting import Starter, mark_of
from treadle.jobs.store import Store
from treadle.schedule.place import Need, Room, best_fit
from treadle.types import Action, TaskState

_log = logging.getLogger("treadle.jobs")
_STARTS_AT_ONCE = 16
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 1.0
"""How often the queue is looked at though nothing has happened: memory of others may come free."""
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""What keeps a job from being started now, and not for ever."""


class Runner:
    """All jobs that are not over."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        starter: Starter,
        gatekeeper: Gatekeeper,
        rooms: Callable[[], Sequence[Room]],
    ) -> None:
        """Prepare.

        Args:
            store: The queue on disk.
            folder: Where each attempt gets a folder.
            starter: Makes a supervisor's task of a job.
            gatekeeper: Pauses what sits at a turnstile.
            rooms: The devices, with what others than jobs have taken.
        """
        self._store, self._folder, self._starter, self._rooms = store, folder, starter, rooms
        self.live: dict[int, Job] = {}
        self.waiting = Waiting()
        self._gatekeeper = gatekeeper
        self._at_gate: set[int] = set()
        self._taken: dict[int, Need] = {}
        self._attempts: dict[int, Attempt] = {}
        self._over: dict[int, asyncio.Event] = {}
        self._unsaved: set[int] = set()
        self._look = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take up what an earlier node has left: adopt what runs, queue what waits."""
        jobs = await self._store.read(table.unfinished)
        self.live = {job.id: job for job in jobs}
        for job in jobs:
            if job.state is TaskState.QUEUED:
                await self.queue(job)
            else:
                self._taken[job.id] = self._need(job)
                self._follow(job)
        self._spawn(self._look_after())

    async def close(self) -> None:
        """Let go: what runs goes on running, and what is known is on the disk."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look(self) -> None:
        """See soon whether something can be started."""
        self._look.set()

    def over(self, number: int) -> asyncio.Event:
        """Set once a live job is over, and that is on the disk."""
        return self._over.setdefault(number, asyncio.Event())

    def log_files(self, job: Job) -> list[Path]:
        """Where the output of a job's newest attempt is, the older file first."""
        folder = self._attempt_folder(job)
        return [folder / "log.1", folder / "log"]

    # The queue.

    async def queue(self, job: Job) -> None:
        """Let a job wait for its turn, or for others; or end it if those have failed."""
        states = {n: self.live[n].state for n in job.spec.after if n in self.live}
        if numbers := [n for n in job.spec.after if n not in states]:
            states |= await self._store.read(lambda c: table.states_of(c, numbers))
        missing = [number for number, state in states.items() if not state.over]
        self.waiting.add(job, self._need(job), missing)
        for number, state in states.items():
            if state.over and state is not TaskState.FINISHED:
                self.finish(job, TaskState.CANCELLED, f"needs job {number}, which is {state}")
                self.save(job)
                return

    async def _look_after(self) -> None:
        """Start what can be started, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), _LOOK_SECONDS)
            self._look.clear()
            try:
                await self._pass()
            except UnavailableError as error:
                _log.error("%s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _pass(self) -> None:
        for number in [*self._unsaved]:
            await self.save(self.live[number])
        await self._hold_newcomers()
        if not len(self.waiting):
            return
        starting = sum(self.live[n].state is TaskState.STARTING for n in self._taken)
        most = max(0, _STARTS_AT_ONCE - starting)
        plan = best_fit(self.waiting.kinds(max(1, most)), self._free(), most)
        self.waiting.explain(plan.waiting)
        await asyncio.gather(*(self._start(action) for action in plan.actions))

    def _free(self) -> list[Room]:
        """The rooms less what jobs have taken."""
        memory: dict[str, int] = {}
        share: dict[str, float] = {}
        for number, need in self._taken.items():
            for uuid in self.live[number].devices:
                memory[uuid] = memory.get(uuid, 0) + need.memory_bytes
                share[uuid] = share.get(uuid, 0.0) + need.share
        return [
            replace(
                room,
                free_memory_bytes=min(
                    room.free_memory_bytes, room.memory_bytes - memory.get(room.uuid, 0)
                ),
                free_share=room.free_share - share.get(room.uuid, 0.0),
            )
            for room in self._rooms()
        ]

    def _need(self, job: Job) -> Need:
        return self._starter.need(job.spec, self._rooms())

    async def _start(self, action: Action) -> None:
        """Start a job. That it is to be started is on the disk before it is."""
        job = self.waiting.take(action.task)
        job.state, job.reason, job.devices = TaskState.STARTING, "", action.devices
        job.attempt += 1
        self._taken[job.id] = self._need(job)
        try:
            await self._write(job)
            task = await asyncio.to_thread(self._starter.task, job)
            attempt = self._attempt(job)
            await asyncio.to_thread(attempt.start, task)
        except (OSError, KeyError, UnavailableError) as error:
            # It is not started anywhere: its next attempt has another number.
            self._attempts.pop(job.id, None)
            reason = f"it could not be started: {error}"
            if isinstance(error, UnavailableError) or getattr(error, "errno", 0) in _PASSING:
                self._again(job, reason)
                self._unsaved.add(job.id)
                raise UnavailableError(f"job {job.id}: {reason}") from error
            self._failed(job, TaskState.FAILED, reason)
            await self.save(job)
            return
        self._follow(job)

    # What runs.

    def _attempt_folder(self, job: Job) -> Path:
        return self._folder / str(job.id) / str(max(1, job.attempt))

    def _attempt(self, job: Job) -> Attempt:
        attempt = Attempt(self._attempt_folder(job), lambda event: self._heard(job, event))
        self._attempts[job.id] = attempt
        return attempt

    def _follow(self, job: Job) -> None:
        attempt = self._attempts.get(job.id) or self._attempt(job)
        self._spawn(self._follow_to_the_end(job, attempt))

    async def _follow_to_the_end(self, job: Job, attempt: Attempt) -> None:
        fate = await attempt.follow()
        ending = attempt.ending()
        if fate is Fate.LOST or ending is None:
            left = await asyncio.to_thread(end_marked, mark_of(job))
            complaint = attempt.complaint()
            reason = f"its supervisor was killed; {left} of its processes were ended" + (
                f" ({complaint})" if complaint else ""
            )
            self._failed(job, TaskState.LOST, reason)
        elif fate is Fate.NEVER_BEGUN:
            self._again(job, "the node ended before it was started")
        else:
            self._ended(job, ending)
        self._attempts.pop(job.id, None)
        await self.save(job)
        self._look.set()

    def _heard(self, job: Job, event: dict[str, Any]) -> None:
        """A supervisor says something."""
        match event.get("event"):
            case "running":
                job.started_at = event["started_at"]
                job.state = TaskState.PAUSED if event["stopped"] else TaskState.RUNNING
                self.pass_on(job)
            case "stopped":
                job.state = TaskState.PAUSED
            case "continued":
                job.state = TaskState.RUNNING
            case _:
                return
        self.save(job)
        self._look.set()

    def pass_on(self, job: Job) -> None:
        """Tell a supervisor what somebody wants of its job, if it is not so yet."""
        attempt = self._attempts.get(job.id)
        if attempt is None:
            return
        if job.cancelled:
            attempt.order(do="end", reason=job.reason or "cancelled")
        elif job.held and job.state is TaskState.RUNNING:
            self._spawn(self._pause(job, attempt))
        elif not job.held and job.state is TaskState.PAUSED:
            self._spawn(self._resume(job, attempt))

    async def _pause(self, job: Job, attempt: Attempt) -> None:
        """Hold a job at its gates; stop its processes if they sit at none."""
        seats = await asyncio.to_thread(self._gatekeeper.hold, job.id, job.devices)
        if not seats:
            attempt.order(do="stop")
        elif job.held and job.state is TaskState.RUNNING:
            self._at_gate.add(job.id)
            job.state, job.reason = TaskState.PAUSED, "held at the gate"
            self.save(job)

    async def _resume(self, job: Job, attempt: Attempt) -> None:
        if job.id not in self._at_gate:
            attempt.order(do="continue")
            return
        self._at_gate.discard(job.id)
        await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)
        if job.state is TaskState.PAUSED:
            job.state, job.reason = TaskState.RUNNING, ""
            self.save(job)

    async def _hold_newcomers(self) -> None:
        """Hold processes of paused jobs that have come to sit since."""
        self._at_gate &= self._attempts.keys()
        for number in [*self._at_gate]:
            await asyncio.to_thread(self._gatekeeper.hold, number, self.live[number].devices)

    def end(self, job: Job, reason: str) -> None:
        """Have what runs of a job ended."""
        attempt = self._attempts.get(job.id)
        if attempt is not None:
            attempt.order(do="end", reason=reason)

    def _ended(self, job: Job, ending: Ending) -> None:
        job.started_at, job.ended_at = ending.started_at or job.started_at, ending.ended_at
        job.exit_code, job.signal = ending.exit_code, ending.signal
        if job.cancelled:
            self.finish(job, TaskState.CANCELLED, job.reason)
        elif ending.exit_code == 0 and not ending.told:
            self.finish(job, TaskState.FINISHED, ending.reason)
        else:
            reason = ending.reason or (
                f"signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
            )
            self._failed(job, TaskState.FAILED, reason, final=ending.told)

    def _failed(self, job: Job, state: TaskState, reason: str, *, final: bool = False) -> None:
        """An attempt has failed: another one, if there are any left."""
        job.failures += 1
        if job.cancelled:
            self.finish(job, TaskState.CANCELLED, job.reason)
        elif final or job.failures > job.spec.retries:
            self.finish(job, state, reason)
        else:
            self._again(job, f"attempt {job.attempt} failed: {reason}")

    def _again(self, job: Job, reason: str) -> None:
        self._taken.pop(job.id, None)
        if job.cancelled:
            self.finish(job, TaskState.CANCELLED, job.reason)
            return
        job.state, job.reason, job.devices = TaskState.QUEUED, reason, ()
        self.waiting.add(job, self._need(job))

    def finish(self, job: Job, state: TaskState, reason: str) -> None:
        """A job is over; so are those that waited for it to succeed."""
        if job.id in self.waiting:
            self.waiting.take(job.id)
        self._taken.pop(job.id, None)
        job.state, job.reason = state, reason
        if job.ended_at is None:
            job.ended_at = time.time()
        for number in self.waiting.ended(job.id, state):
            other = self.live[number]
            self.finish(other, TaskState.CANCELLED, f"needs job {job.id}, which is {state}")
            self.save(other)

    # The disk.

    def _write(self, job: Job) -> asyncio.Future[None]:
        """Write a job as it is now."""
        written, now = copy.copy(job), time.time()
        return self._store.write(lambda connection: table.save(connection, written, now))

    def save(self, job: Job) -> asyncio.Task[None]:
        """Write a job; if the disk does not take it, again later. One that is over is let go."""
        writing = self._write(job)
        return self._spawn(self._saved(job, writing, is_over=job.state.over))

    async def _saved(self, job: Job, writing: asyncio.Future[None], *, is_over: bool) -> None:
        try:
            await writing
        except UnavailableError as error:
            _log.error("%s", error)
            self._unsaved.add(job.id)
            return
        self._unsaved.discard(job.id)
        if is_over:
            self.live.pop(job.id, None)
            if (event := self._over.pop(job.id, None)) is not None:
                event.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
