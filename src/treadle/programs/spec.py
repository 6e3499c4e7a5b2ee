"""What a person may ask of a job, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.errors import InvalidRequestError
from treadle.types import Priority, TaskState

MOST_JOBS_AT_ONCE = 100_000
MOST_NUMBER = 2**63 - 1
"""Of a job: what the database takes."""
_MOST_WORDS = 4096
Text = Annotated[str, Meta(max_length=200)]
Memory = Annotated[int, Meta(ge=1, le=MOST_NUMBER)]
Index = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
Seconds = Annotated[float, Meta(gt=0, le=10 * 365 * 86400)]
KernelSeconds = Annotated[float, Meta(ge=0.1, le=86400)]
"""Shorter ones are not told apart: what runs is looked at 20 times a second."""
OnLongKernel = Literal["report", "pause", "stop"]


_LEAST_MEMORY_BYTES = 1 << 20
"""Less is a mistake in the unit."""
_MOST_SPEC_BYTES = 1 << 28
"""Of all jobs of an array together, without their environment, which is kept once."""


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job as it was submitted."""

    command: Annotated[tuple[str, ...], Meta(min_length=1, max_length=_MOST_WORDS)]
    name: Text = ""
    priority: Literal["critical", "normal", "background"] = "background"
    memory_bytes: Memory | None = None
    """Limit of GPU memory, on each of its GPUs; without GPUs, of host memory."""
    host_memory_bytes: Memory | None = None
    """Limit of host memory."""
    gpus: Annotated[int, Meta(ge=0, le=64)] | None = None
    """None: one, if the node has any."""
    share: Annotated[float, Meta(ge=0, le=1024)] | None = None
    """Of a GPU's compute that it reserves, or cores; None: nothing of a GPU, one core."""
    time_limit_seconds: Seconds | None = None
    max_kernel_seconds: KernelSeconds | None = None
    """No kernel of it may run for longer; None: none is watched."""
    on_long_kernel: OnLongKernel = "pause"
    """What is done with the job when one does."""
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    after: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=MOST_NUMBER)], ...], Meta(max_length=1000)
    ] = ()
    """Jobs that must have finished, with exit code 0, before."""
    env: dict[str, str] = {}
    cwd: str = ""
    umask: Annotated[int, Meta(ge=0, le=0o777)] = 0o022
    grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """Between SIGTERM and SIGKILL when it is to end."""
    log_bytes: Annotated[int, Meta(ge=1 << 12, le=1 << 40)] = 64 << 20
    """At most so much of its output is kept, of the newest."""
    array_index: Index | None = None
    service: str = ""
    """Which service it is an instance of, with what identifies its configuration."""


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to queue a job, or one for each number of an array."""

    job: JobSpec
    array: Annotated[tuple[Index, ...], Meta(max_length=MOST_JOBS_AT_ONCE)] = ()


def decode_submission(body: bytes) -> Submission:
    """Read a submission.

    Raises:
        InvalidRequestError: Says what is allowed.
    """
    try:
        submission = msgspec.json.decode(body, type=Submission)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"not a submission: {error}") from None
    check_spec(submission.job)
    if submission.job.service:
        raise InvalidRequestError("service: services come from the configuration file")
    each = len(msgspec.json.encode(replace(submission.job, env={})))
    if len(submission.array) * each > _MOST_SPEC_BYTES:
        raise InvalidRequestError(
            f"an array of {len(submission.array)} jobs with so long a command; allowed: "
            f"{_MOST_SPEC_BYTES >> 20} MiB for all together"
        )
    if len(set(submission.array)) != len(submission.array):
        raise InvalidRequestError("an array has each number once")
    return submission


def check_spec(spec: JobSpec) -> None:
    """Hold against what the types do not say.

    Raises:
        InvalidRequestError: Says what is allowed.
    """
    words = (*spec.command, spec.cwd, *spec.env, *spec.env.values())
    if any("\0" in word for word in words):
        raise InvalidRequestError("a command, folder or variable cannot hold a zero byte")
    if not spec.name.isprintable():
        raise InvalidRequestError(f"name: {spec.name!r}; allowed: printable characters")
    for field in ("memory_bytes", "host_memory_bytes"):
        amount = getattr(spec, field)
        if amount is not None and amount < _LEAST_MEMORY_BYTES:
            raise InvalidRequestError(f"{field}: {amount}; allowed: 1 MiB and above")
    if spec.max_kernel_seconds is not None and spec.gpus == 0:
        raise InvalidRequestError("max_kernel_seconds: a job without GPUs has no kernels to watch")
    if spec.max_kernel_seconds is None and spec.on_long_kernel != "pause":
        raise InvalidRequestError("on_long_kernel: needs max_kernel_seconds, the limit")
    if not spec.command[0]:
        raise InvalidRequestError("command: the program's name is empty")
    if spec.cwd and not spec.cwd.startswith("/"):
        raise InvalidRequestError(f"cwd: {spec.cwd!r}; allowed: an absolute path")
    if bad := [name for name in spec.env if not name or "=" in name]:
        raise InvalidRequestError(f"env: {bad[0]!r} is no name of a variable")


class Job(Struct, kw_only=True):
    """A job and how far it has come. Times are seconds since 1970."""

    id: int
    spec: JobSpec
    state: TaskState
    reason: str = ""
    """Why it is in its state, in words."""
    uid: int
    user: str = ""
    peer_pid: int | None = None
    """Of the process that submitted it."""
    attempt: int = 0
    """Number of the newest; each has a folder of its own."""
    failures: int = 0
    """Attempts that failed, to be held against its retries."""
    devices: tuple[str, ...] = ()
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    cancelled: bool = False
    """Whether somebody wants its end."""
    held: bool = False
    """Whether somebody wants it paused."""
    pid: int | None = None
    """Of its first process while it runs; not kept on the disk."""
    bounds: str = ""
    """What holds it to its limits on the host, in words."""

    @property
    def priority(self) -> Priority:
        return Priority.parse(self.spec.priority)

    @property
    def name(self) -> str:
        return self.spec.name or self.spec.command[0].rpartition("/")[2]

    def told(self) -> dict[str, Any]:
        """As the API tells of it: without the environment, which may hold secrets."""
        known = copy(self)
        known.spec = replace(self.spec, env={})
        content: dict[str, Any] = msgspec.to_builtins(known)
        content["name"] = self.name
        return content


def sendable(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables that are text: others cannot be kept with a job."""
    return {name: value for name, value in environment.items() if is_text(name + value)}


def is_text(word: str) -> bool:
    """Whether it can be sent and kept: what the system hands over may be any bytes."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
