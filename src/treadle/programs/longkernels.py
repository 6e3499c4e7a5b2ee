"""Kernels that run for longer than their job may have any run: reported, with what is done."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from treadle.programs.holding import Gatekeeper, LongLaunch
from treadle.programs.runner import Runner
from treadle.programs.spec import Job
from treadle.types import TaskState

_log = logging.getLogger("treadle.jobs")
_LOOK_SECONDS = 0.05
_IDLE_SECONDS = 0.5
"""Between two looks whether there is a job with such a limit."""


class LongKernels:
    """Looks at the launches of the jobs that have a limit, 20 times a second."""

    def __init__(self, gatekeeper: Gatekeeper, runner: Runner) -> None:
        """Prepare.

        Args:
            gatekeeper: Knows who sits at the turnstiles.
            runner: Has the jobs, pauses and ends them.
        """
        self._gatekeeper, self._runner = gatekeeper, runner
        self._stated: dict[int, set[tuple[str, int, int]]] = {}
        """What was reported of each job: GPU, process and when the launch began."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many were found, by GPU and by what was to be done."""

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            watched = [job for job in self._runner.live if job.spec.max_kernel_seconds is not None]
            self._stated = {j.id: self._stated.get(j.id, set()) for j in watched}
            for job in watched:
                if job.state is TaskState.RUNNING:
                    try:
                        await self._look(job)
                    except Exception:  # one job's trouble leaves the others watched
                        _log.exception("the kernels of job %d could not be looked at", job.id)
            await asyncio.sleep(_LOOK_SECONDS if watched else _IDLE_SECONDS)

    async def _look(self, job: Job) -> None:
        limit = job.spec.max_kernel_seconds
        assert limit is not None
        found = await asyncio.to_thread(self._gatekeeper.long_launches, job.id, job.devices, limit)
        for launch in found:
            key = (launch.gpu, launch.pid, launch.since_ns)
            # Meanwhile somebody may have paused it, or it may have ended.
            if job.state is TaskState.RUNNING and key not in self._stated[job.id]:
                self._stated[job.id].add(key)
                self._act(job, launch, describe(launch, limit))

    def _act(self, job: Job, launch: LongLaunch, text: str) -> None:
        action = job.spec.on_long_kernel
        self.counts[launch.gpu, action] += 1
        _log.warning("job %d (%s): %s: %s", job.id, job.name, action, text)
        if action == "stop":
            self._runner.end(job, text)
        elif action == "pause":
            self._runner.pauses.arrest(job, text)
            self._runner.pass_on(job)
            self._runner.live.save(job)
        else:
            job.reason = text
            self._runner.live.save(job)


def describe(launch: LongLaunch, limit_seconds: float) -> str:
    """A launch that runs for too long, in words."""
    what = launch.kernel or "a kernel of unknown name"
    waits = ", ".join(launch.victims) or "nobody"
    return (
        f"{what}, of process {launch.pid}, has run for {launch.seconds:.1f} s, allowed are "
        f"{limit_seconds:g} s; more urgent and waiting: {waits}"
    )
