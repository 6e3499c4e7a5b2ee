"""Starts queued jobs through supervisors, follows them, and takes up what an earlier node left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.errors import UnavailableError
from treadle.programs import table
from treadle.programs.attempt import Attempt, Ending, Fate
from treadle.programs.background import Background
from treadle.programs.holding import Gatekeeper
from treadle.programs.live import Live
from treadle.programs.pausing import Pauses
from treadle.programs.places import Places
from treadle.programs.queue import Waiting
from treadle.programs.retention import tidy
from treadle.programs.spawner import Spawner
from treadle.programs.spec import Job
from treadle.programs.starting import Starter
from treadle.programs.store import Store
from treadle.programs.supervisor.program import PASSING
from treadle.schedule.place import Room, best_fit
from treadle.types import Action, ActionKind, Plan, TaskState

_log = logging.getLogger("treadle.jobs")
_STARTS_AT_ONCE = 16
_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 1.0
"""How often the queue is looked at though nothing has happened: memory of others may come free."""
_CANCELLED_AT_ONCE = 50
"""Of the jobs that need one that has failed, between two moments for others."""
_MOST_REFUSALS = 3
"""So often a supervisor may fail to start a job until that is the job's failure."""


class Runner:
    """All jobs that are not over."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        starter: Starter,
        gatekeeper: Gatekeeper,
        rooms: Callable[[], Sequence[Room]],
        background: Background,
        spawner: Spawner,
        reserve_after_seconds: float,
    ) -> None:
        """Prepare.

        Args:
            store: The queue on disk.
            folder: Where each attempt gets a folder.
            starter: Makes a supervisor's task of a job.
            gatekeeper: Pauses what sits at a turnstile.
            rooms: The devices, with what others than jobs have taken.
            background: Runs what goes on beside the callers.
            spawner: Starts supervisors.
            reserve_after_seconds: For a job that has waited so long, devices are kept free.
        """
        self._store, self._folder, self._starter = store, folder, starter
        self._background, self._spawner = background, spawner
        self._reserve_after_seconds = reserve_after_seconds
        self.live = Live(store, background, self._on_over)
        self.waiting = Waiting()
        self.pauses = Pauses(gatekeeper, self.live, background)
        self._again_soon: dict[int, str] = {}
        self.places = Places(starter, rooms)
        self._attempts: dict[int, Attempt] = {}
        self._refusals: dict[int, int] = {}
        self._look = asyncio.Event()
        self._paused_until = float("-inf")
        self._draining = False

    async def start(self) -> None:
        """Take up what an earlier node has left: adopt what runs, queue what waits."""
        jobs = await self._store.read(table.unfinished)
        for job in jobs:
            self.live.add(job)
        for job in jobs:
            if job.state is TaskState.QUEUED:
                await self.queue(job)
            else:
                self.places.take(job)
                self._follow(job, self._attempt(job))
        self._background.spawn(self._look_after())

    def drain(self) -> None:
        """Start nothing more from the queue."""
        self._draining = True

    def look(self) -> None:
        """See soon whether something can be started."""
        self._look.set()

    def attempt_folder(self, number: int, attempt: int) -> Path:
        """Of one attempt at a job."""
        return self._folder / str(number) / str(attempt)

    # The queue.

    async def queue(self, job: Job, known: Mapping[int, TaskState] | None = None) -> None:
        """Let a job wait for its turn, or for others; or end it if those have failed.

        Args:
            job: It is live.
            known: States of those that it waits for, as of a moment ago.
        """
        states = await self.live.states(job.spec.after, known or {}) if job.spec.after else {}
        missing = [number for number, state in states.items() if not state.over]
        self.waiting.add(job, self.places.need(job), missing)
        failed = [n for n, s in states.items() if s.over and s is not TaskState.FINISHED]
        if job.cancelled:
            self.finish(job, TaskState.CANCELLED, job.reason)
            self.live.save(job)
        elif failed:
            reason = f"needs job {failed[0]}, which is {states[failed[0]]}"
            self.finish(job, TaskState.CANCELLED, reason)
            self.live.save(job)

    async def _look_after(self) -> None:
        """Start what can be started, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._look.wait()
            self._look.clear()
            try:
                await self._pass()
            except UnavailableError as error:
                self._pause(str(error))
            except Exception:
                _log.exception("the queue met an error that was not expected")
                self._pause("")

    async def _pass(self) -> None:
        await self.live.save_again()
        await self.pauses.hold_newcomers()
        if self._draining or not len(self.waiting) or time.monotonic() < self._paused_until:
            return
        starting = sum(job.state is TaskState.STARTING for job in self.places)
        most = max(0, _STARTS_AT_ONCE - starting)
        kinds = self.waiting.kinds(max(1, most))
        plan = best_fit(kinds, self.places.free(), most, self._reserve_after_seconds)
        self.waiting.explain(plan.waiting)
        await self.execute(plan)

    async def execute(self, plan: Plan) -> None:
        """Do what a plan says. A step whose job has gone on meanwhile is left out."""
        starts = []
        for action in plan.actions:
            job = self.live.get(action.task)
            if job is None:
                continue
            if action.kind is ActionKind.START and job.id in self.waiting:
                # Taken before anything waits: nobody else may take it meanwhile.
                starts.append(self._start(self._take(action)))
            elif action.kind is ActionKind.STOP:
                self.again(job, action.reason)
            elif action.kind in (ActionKind.PAUSE, ActionKind.RESUME) and job.state.placed:
                pausing = action.kind is ActionKind.PAUSE
                self.pauses.plan(job, action.reason if pausing else "")
                self.pass_on(job)
        await asyncio.gather(*starts)

    def _pause(self, why: str) -> None:
        """Start nothing for a moment."""
        if why:
            _log.error("%s", why)
        self._paused_until = time.monotonic() + _RETRY_SECONDS

    def _take(self, action: Action) -> Job:
        """Take a job out of the queue, with what it gets."""
        job = self.waiting.take(action.task)
        job.state, job.reason, job.devices = TaskState.STARTING, "", action.devices
        job.attempt += 1
        self.places.take(job)
        return job

    async def _start(self, job: Job) -> None:
        """Start a job. That it is to be started is on the disk before it is."""
        attempt = self._attempt(job)
        try:
            await self.live.write(job)
            if job.cancelled:
                self._again(job, "")
                return
            await asyncio.to_thread(self._begin, job, attempt)
        except UnavailableError as error:
            self._again(job, str(error))
            self._pause("")
        except Exception as error:
            # It is not started anywhere: its next attempt has another number.
            reason = f"it could not be started: {error}"
            if isinstance(error, OSError) and error.errno in PASSING:
                self._again(job, reason)
                self._pause(f"job {job.id}: {reason}")
            else:
                self._failed(job, TaskState.FAILED, reason)
        else:
            self._follow(job, attempt)

    def _begin(self, job: Job, attempt: Attempt) -> None:
        """Start an attempt, and tidy those before it. Not for the event loop."""
        if job.attempt > 1:
            tidy(self._folder / str(job.id), job.attempt)
        attempt.start(self._starter.task(job), self._spawner)

    # What runs.

    def _attempt(self, job: Job) -> Attempt:
        folder = self.attempt_folder(job.id, job.attempt)
        attempt = Attempt(folder, lambda event: self._heard(job, event))
        self._attempts[job.id] = attempt
        return attempt

    def _follow(self, job: Job, attempt: Attempt) -> None:
        self._background.spawn(self._follow_to_the_end(job, attempt))

    async def _follow_to_the_end(self, job: Job, attempt: Attempt) -> None:
        fate, ending = await attempt.follow()
        if fate is Fate.NEVER_BEGUN:
            self._refused(job, attempt)
        elif fate is Fate.LOST or ending is None:
            left = await asyncio.to_thread(self._starter.end_left, job)
            complaint = attempt.complaint()
            reason = f"its supervisor was killed; {left} of its processes were ended" + (
                f" ({complaint})" if complaint else ""
            )
            self._failed(job, TaskState.LOST, reason)
        else:
            self._ended(job, ending)
        self._look.set()

    def _refused(self, job: Job, attempt: Attempt) -> None:
        """A supervisor has not begun the job: this node's own has a reason, an earlier one's not.

        What passes is waited for; a supervisor that never starts this job must not be asked for
        ever.
        """
        if not (attempt.refused or attempt.delayed):
            self._again(job, "the node ended before it was started")
            return
        reason = f"its supervisor could not start it: {attempt.complaint()}"
        self._refusals[job.id] = self._refusals.get(job.id, 0) + attempt.refused
        if self._refusals[job.id] >= _MOST_REFUSALS:
            self._failed(job, TaskState.FAILED, reason)
        else:
            self._again(job, reason)
            self._pause(f"job {job.id}: {reason}")

    def _heard(self, job: Job, event: Mapping[str, Any]) -> None:
        """A supervisor says something."""
        match event.get("event"):
            case "running":
                job.started_at, job.pid = event["started_at"], event["pid"]
                job.state = TaskState.PAUSED if event["stopped"] else TaskState.RUNNING
            case "stopped":
                job.state = TaskState.PAUSED
            case "continued":
                job.state = TaskState.RUNNING
            case _:
                return
        self.pass_on(job)  # what is wanted may have changed since it was told
        self.live.save(job)
        self._look.set()

    def pass_on(self, job: Job) -> None:
        """Tell a supervisor what somebody wants of its job, if it is not so yet."""
        attempt = self._attempts.get(job.id)
        if attempt is None:
            return
        if job.cancelled:
            self._tell_end(job, attempt, job.reason or "cancelled")
        elif job.id in self._again_soon:
            self._tell_end(job, attempt, self._again_soon[job.id])
        else:
            self.pauses.pass_on(job, attempt)

    def again(self, job: Job, reason: str) -> None:
        """Have what runs of a job ended, and queue it anew: that is not held against it."""
        if job.state.placed and job.id not in self._again_soon:
            self._again_soon[job.id] = reason
            self.pass_on(job)

    def end(self, job: Job, reason: str) -> bool:
        """Have what runs of a job ended; whether its supervisor was told."""
        attempt = self._attempts.get(job.id)
        return attempt is not None and self._tell_end(job, attempt, reason)

    def _tell_end(self, job: Job, attempt: Attempt, reason: str) -> bool:
        """Have an attempt ended; one that is held at a gate is let go, so that it can end well."""
        told = attempt.order(do="end", reason=reason)
        self.pauses.release(job)
        return told

    def _ended(self, job: Job, ending: Ending) -> None:
        again = self._again_soon.pop(job.id, None)
        job.started_at, job.ended_at = ending.started_at or job.started_at, ending.ended_at
        job.exit_code, job.signal = ending.exit_code, ending.signal
        if job.cancelled:
            self._over(job, TaskState.CANCELLED, job.reason)
        elif again is not None and ending.told:
            self._again(job, again)
        elif ending.interrupted:
            self._interrupted(job, ending.reason)
        elif ending.exit_code == 0 and not ending.told:
            self._over(job, TaskState.FINISHED, ending.reason)
        else:
            reason = ending.reason or (
                f"signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
            )
            self._failed(job, TaskState.FAILED, reason, final=ending.told)

    def _interrupted(self, job: Job, reason: str) -> None:
        """An attempt was ended with the machine: another one costs no retry, if it has any left."""
        if job.failures < job.spec.retries:
            self._again(job, reason)
            self._pause("")  # this node may be about to be told to end, too
        else:
            self._over(job, TaskState.LOST, reason)

    def _failed(self, job: Job, state: TaskState, reason: str, *, final: bool = False) -> None:
        """An attempt has failed: another one, if there are any left."""
        job.failures += 1
        if job.cancelled:
            self._over(job, TaskState.CANCELLED, job.reason)
        elif final or job.failures > job.spec.retries:
            self._over(job, state, reason)
        else:
            self._again(job, f"attempt {job.attempt} failed: {reason}")

    def _again(self, job: Job, reason: str) -> None:
        """Back into the queue."""
        if job.cancelled:
            self._over(job, TaskState.CANCELLED, job.reason)
            return
        self.places.leave(job)
        self._attempts.pop(job.id, None)
        self._again_soon.pop(job.id, None)
        job.state, job.reason, job.devices = TaskState.QUEUED, reason, ()
        job.started_at = job.ended_at = job.exit_code = job.signal = None
        self.waiting.add(job, self.places.need(job))
        self.live.save(job)

    def _over(self, job: Job, state: TaskState, reason: str) -> None:
        self.finish(job, state, reason)
        self.live.save(job)

    def finish(self, job: Job, state: TaskState, reason: str) -> None:
        """A job is over, which its caller writes; so are, soon, those that need it to succeed."""
        self._end(job, state, reason)
        if doomed := self.waiting.ended(job.id, job.state):
            self._background.spawn(self._cancel(doomed, f"needs job {job.id}, which is {state}"))

    async def _cancel(self, numbers: Sequence[int], reason: str) -> None:
        """End jobs that never can start: there may be very many, and others want their turn."""
        for begin in range(0, len(numbers), _CANCELLED_AT_ONCE):
            some = [
                self.live[n]
                for n in numbers[begin : begin + _CANCELLED_AT_ONCE]
                if n in self.waiting
            ]
            for job in some:
                self.finish(job, TaskState.CANCELLED, reason)
            if some:
                self.live.save(*some)
            await asyncio.sleep(0)

    def _end(self, job: Job, state: TaskState, reason: str) -> None:
        if job.id in self.waiting:
            self.waiting.take(job.id)
        self.places.leave(job)
        for held in (self._attempts, self._refusals, self._again_soon):
            held.pop(job.id, None)
        job.state, job.reason = state, reason
        if job.ended_at is None:
            job.ended_at = time.time()

    def _on_over(self, job: Job) -> None:
        if job.attempt:
            self._background.spawn(asyncio.to_thread(tidy, self._folder / str(job.id)))
