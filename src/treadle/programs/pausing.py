"""Jobs that are paused: at their gates where they sit at some, else stopped."""

from __future__ import annotations

import asyncio
import logging

from treadle.programs.attempt import Attempt
from treadle.programs.background import Background
from treadle.programs.holding import Gatekeeper
from treadle.programs.live import Live
from treadle.programs.spec import Job
from treadle.types import Priority, TaskState

_log = logging.getLogger("treadle.jobs")


class Pauses:
    """Pauses jobs, and lets them go on."""

    def __init__(self, gatekeeper: Gatekeeper, live: Live, background: Background) -> None:
        """Begin with none.

        Args:
            gatekeeper: Holds processes at turnstiles.
            live: The jobs.
            background: Runs what waits for the gatekeeper.
        """
        self._gatekeeper, self._live, self._background = gatekeeper, live, background
        self._at_gate: set[int] = set()
        self._planned: dict[int, str] = {}
        self._arrests: dict[int, str] = {}
        self._turn = asyncio.Lock()
        """One change after another: what is wanted is looked at when its turn has come."""

    def plan(self, job: Job, reason: str) -> None:
        """Have a job paused by a plan, for a reason; with none, it may go on."""
        if reason:
            self._planned[job.id] = reason
        else:
            self._planned.pop(job.id, None)

    def arrest(self, job: Job, reason: str) -> None:
        """Have a job paused for a reason, as its owner would, and locked where that is possible.

        Its owner lets it go on.
        """
        job.held = True
        self._arrests[job.id] = reason

    async def take_up(self) -> None:
        """See that none is locked that is to run: an earlier node may have left it so."""
        for job in [*self._live]:
            if job.state.placed and not self._wanted(job):
                await self._unlock(job)

    async def close(self) -> None:
        """Leave nobody locked: those who wait at a gate go on when the node ends, too."""
        for number in [*self._at_gate]:
            if (job := self._live.get(number)) is not None:
                await self._unlock(job)

    def _wanted(self, job: Job) -> bool:
        """Whether it is to be paused: because of somebody, or of a plan."""
        return job.held or job.id in self._planned

    def pass_on(self, job: Job, attempt: Attempt) -> None:
        """See that a job that runs is paused or not, as somebody wants it."""
        if job.state is (TaskState.RUNNING if self._wanted(job) else TaskState.PAUSED):
            self._background.spawn(self._settle(job, attempt))

    def release(self, job: Job) -> None:
        """Let go of a job that is to end."""
        self._planned.pop(job.id, None)
        self._arrests.pop(job.id, None)
        if job.id in self._at_gate:
            self._background.spawn(self._let_go(job))

    async def hold_newcomers(self) -> None:
        """Hold processes of paused jobs that have come to sit since."""
        for number in [*self._at_gate]:
            async with self._turn:
                job = self._live.get(number)
                if job is None or job.state is not TaskState.PAUSED:
                    self._at_gate.discard(number)
                elif number in self._at_gate:
                    await asyncio.to_thread(self._gatekeeper.hold, number, job.devices)

    async def _settle(self, job: Job, attempt: Attempt) -> None:
        async with self._turn:
            if job.cancelled:
                return
            if self._wanted(job) and job.state is TaskState.RUNNING:
                await self._hold(job, attempt)
            elif not self._wanted(job) and job.state is TaskState.PAUSED:
                await self._resume(job, attempt)
        if job.id in self._at_gate and not self._wanted(job):
            self.pass_on(job, attempt)  # somebody has changed his mind meanwhile

    async def _hold(self, job: Job, attempt: Attempt) -> None:
        seats = await asyncio.to_thread(self._gatekeeper.hold, job.id, job.devices)
        arrest = self._arrests.pop(job.id, "")
        if not seats:
            job.reason = arrest and f"{arrest}; stopped: it sits at no gate"
            attempt.order(do="stop")
        elif job.state is TaskState.RUNNING and not job.cancelled:
            self._at_gate.add(job.id)
            job.state = TaskState.PAUSED
            job.reason = self._planned.get(job.id, "held at the gate")
            if arrest:
                job.reason = f"{arrest}; held at the gate, being locked"
                await self._lock(job, attempt, arrest)
            self._live.save(job)
        else:
            await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)

    async def _resume(self, job: Job, attempt: Attempt) -> None:
        if job.id not in self._at_gate:
            attempt.order(do="continue")
            return
        self._at_gate.discard(job.id)
        problem = await self._unlock(job)
        await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)
        if job.state is TaskState.PAUSED:
            job.state, job.reason = TaskState.RUNNING, problem
            self._live.save(job)
            self.pass_on(job, attempt)

    async def _let_go(self, job: Job) -> None:
        async with self._turn:
            self._at_gate.discard(job.id)
            await self._unlock(job)
            await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)

    async def _lock(self, job: Job, attempt: Attempt, why: str) -> None:
        """Lock what is held at a gate already, and say how that went."""
        problem = await asyncio.to_thread(self._gatekeeper.lock, job.id, job.devices)
        if not problem:
            job.reason = f"{why}; held at the gate and locked by process checkpoint"
        elif job.priority is not Priority.CRITICAL:
            job.reason = f"{why}; held at the gate, not locked: {problem}"
        else:  # critical work waits at no gate
            job.reason = f"{why}; stopped, not locked: {problem}"
            self._at_gate.discard(job.id)
            await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)
            job.state = TaskState.RUNNING  # until its supervisor says that it is stopped
            attempt.order(do="stop")

    async def _unlock(self, job: Job) -> str:
        """Let go of processes that may be locked: that outlives the node that has asked for it.

        Returns why that failed, empty if it did not.
        """
        if job.spec.max_kernel_seconds is None or job.spec.on_long_kernel != "pause":
            return ""
        problem = await asyncio.to_thread(self._gatekeeper.unlock, job.id, job.devices)
        if problem:
            problem = f"it may still be locked by process checkpoint: {problem}"
            _log.error("job %d: %s", job.id, problem)
        return problem
