"""What a job becomes when it starts: environment, limits, user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.programs.attempt import MARK, Task, User
from treadle.programs.holding import queue_name, seat_name
from treadle.programs.leftovers import end_marked
from treadle.programs.limits import HostLimits
from treadle.programs.spec import Job, JobSpec
from treadle.progress import make_folder
from treadle.schedule.place import Need, Room
from treadle.turnstile import TurnstileError
from treadle.turnstile.launch import GateOptions, gate_environment
from treadle.types import Priority

if TYPE_CHECKING:
    from treadle.programs.jobs import Caller

ATTEMPT = "TREADLE_JOB"
ARRAY_INDEX = "TREADLE_ARRAY_INDEX"
UNLIMITED_MEMORY_FRACTION = 0.25
"""Of a GPU's memory, what a job without a limit reserves. Nothing holds it to that."""


Parallel = Callable[[str, Job], dict[str, str]]
_GATE = ("TREADLE_TURNSTILE", "TREADLE_CLASS", "TREADLE_NAME", "TREADLE_MEMORY_BYTES")
_WATCH = "TREADLE_WATCH"


class Starter:
    """Makes tasks of jobs, for one node."""

    def __init__(
        self,
        turnstiles: Path,
        queue: Path,
        memory_fraction: float = UNLIMITED_MEMORY_FRACTION,
        limits: HostLimits | None = None,
        parallel: Parallel = lambda uuid, job: {},
    ) -> None:
        """Prepare.

        Args:
            turnstiles: Their folder.
            queue: The folder of the queue, which tells its jobs from those of other queues.
            memory_fraction: Of a GPU's memory, what a job without a limit reserves.
            limits: Bounds jobs on the host.
            parallel: The variables that a job needs on a GPU in parallel mode; none on others.
        """
        self._turnstiles = turnstiles
        self._queue = queue_name(queue)
        self._memory_fraction = memory_fraction
        self._limits = limits or HostLimits()
        self._parallel = parallel

    def why_not(self, caller: Caller) -> str:
        """Why a caller cannot have a job run here; empty if nothing is in the way."""
        if os.geteuid() not in (0, caller.uid):
            return (
                f"jobs run here as user {os.geteuid()}, the node's, and not as user {caller.uid}: "
                "treadle run starts a program of yours under the same gate, without the queue; "
                "for jobs of other users the node has to run as root"
            )
        return ""

    def need(self, spec: JobSpec, rooms: Sequence[Room], uid: int) -> Need:
        """What a job of that user needs of each device."""
        priority = Priority.parse(spec.priority)
        gpus = spec.gpus
        if gpus is None:
            gpus = 1 if any(room.is_gpu for room in rooms) else 0
        if not gpus:
            return Need(
                priority, spec.memory_bytes or 0, 1.0 if spec.share is None else spec.share, 0
            )
        memory = spec.memory_bytes
        if memory is None:
            smallest = min((room.memory_bytes for room in rooms if room.is_gpu), default=0)
            memory = int(smallest * self._memory_fraction)
        return Need(priority, memory, spec.share or 0.0, gpus, guest=uid != os.geteuid())

    def mark(self, job: Job) -> str:
        """Tells the processes of this attempt from all others of this machine."""
        return f"{job.id}.{job.attempt}.{self._queue}"

    def end_left(self, job: Job) -> int:
        """End what an attempt has left, whose supervisor was killed; returns how many processes."""
        left = end_marked(f"{MARK}={self.mark(job)}")
        self._limits.remove(self.mark(job))
        return left

    def task(self, job: Job) -> Task:
        """What its supervisor is to do."""
        spec = job.spec
        environment = {n: v for n, v in spec.env.items() if not _of_another(n)}
        environment |= {MARK: self.mark(job), ATTEMPT: f"{job.id}.{job.attempt}"}
        if spec.array_index is not None:
            environment[ARRAY_INDEX] = str(spec.array_index)
        gpus = [uuid for uuid in job.devices if uuid != "cpu"]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        if gpus:
            environment |= self._gate(job, gpus, environment)
            environment |= self._parallel(gpus[0], job)
        host_memory = spec.host_memory_bytes or (None if gpus else spec.memory_bytes)
        bounds = self._limits.bounds(self.mark(job), job.priority, host_memory, has_gpu=bool(gpus))
        job.bounds = bounds.says
        return Task(
            command=spec.command,
            env=environment,
            cwd=spec.cwd or "/",
            umask=spec.umask,
            time_limit_seconds=spec.time_limit_seconds,
            grace_seconds=spec.grace_seconds,
            log_bytes=spec.log_bytes,
            limits=bounds.limits,
            nice=bounds.nice,
            progress=self._progress(),
            cgroup=bounds.cgroup,
            user=_user(job.uid),
        )

    def _progress(self) -> str:
        try:
            return str(make_folder(self._turnstiles))
        except OSError:  # without a place for reports it runs as well
            return ""

    def _gate(self, job: Job, gpus: Sequence[str], environment: dict[str, str]) -> dict[str, str]:
        options = GateOptions(
            priority=job.priority,
            folder=self._turnstiles,
            name=seat_name(job.name, job.id),
            memory_bytes=job.spec.memory_bytes,
            gpus=",".join(gpus),
        )
        try:
            found = gate_environment(options, environment)
        except TurnstileError as error:
            job.reason = f"not gated: {error}"
            return {}
        if job.spec.max_kernel_seconds is not None:
            found[_WATCH] = "1"
        if len(gpus) > 1:  # its ranks wait for all of them, or for none
            found["TREADLE_GANG"] = ",".join(gpus)
        return found


def _of_another(name: str) -> bool:
    """Whether a variable is of the job, or the gated program, that has submitted this job."""
    others = (*_GATE, _WATCH, MARK, ATTEMPT, ARRAY_INDEX, "TREADLE_GANG", "TREADLE_PROGRESS")
    return name in others or name.startswith("CUDA_MPS_")


def _user(uid: int) -> User | None:
    """Whom to become; None where the node is that user already.

    Raises:
        PermissionError: If the node cannot become that user: as itself it starts nobody else's job.
    """
    me = os.geteuid()
    if uid == me:
        return None
    if me != 0:  # it was queued when the node ran as somebody else
        raise PermissionError(f"it is of user {uid}, and the node runs as user {me}, not as root")
    try:
        about = pwd.getpwuid(uid)
    except KeyError:
        raise PermissionError(f"there is no user {uid} on this machine") from None
    groups = tuple(os.getgrouplist(about.pw_name, about.pw_gid))
    return User(uid=uid, gid=about.pw_gid, groups=groups)
