"""Jobs that are paused: at their gates where they sit at some, else stopped."""

from __future__ import annotations

import asyncio

from treadle.programs.attempt import Attempt
from treadle.programs.background import Background
from treadle.programs.holding import Gatekeeper
from treadle.programs.live import Live
from treadle.programs.spec import Job
from treadle.types import TaskState


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
        self._turn = asyncio.Lock()
        """One change after another: what is wanted is looked at when its turn has come."""

    def plan(self, job: Job, reason: str) -> None:
        """Have a job paused by a plan, for a reason; with none, it may go on."""
        if reason:
            self._planned[job.id] = reason
        else:
            self._planned.pop(job.id, None)

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
        if not seats:
            attempt.order(do="stop")
        elif job.state is TaskState.RUNNING and not job.cancelled:
            self._at_gate.add(job.id)
            job.state = TaskState.PAUSED
            job.reason = self._planned.get(job.id, "held at the gate")
            self._live.save(job)
        else:
            await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)

    async def _resume(self, job: Job, attempt: Attempt) -> None:
        if job.id not in self._at_gate:
            attempt.order(do="continue")
            return
        self._at_gate.discard(job.id)
        await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)
        if job.state is TaskState.PAUSED:
            job.state, job.reason = TaskState.RUNNING, ""
            self._live.save(job)
            self.pass_on(job, attempt)

    async def _let_go(self, job: Job) -> None:
        async with self._turn:
            self._at_gate.discard(job.id)
            await asyncio.to_thread(self._gatekeeper.let_go, job.id, job.devices)
