"""Jobs from Python: ``treadle.submit(...)``, ``treadle.jobs()``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from treadle.client.node import NodeClient
from treadle.errors import TreadleError
from treadle.node.paths import socket_path
from treadle.programs.spec import is_text, sendable
from treadle.types import Priority, TaskState
from treadle.units import parse_bytes, parse_seconds

_T = TypeVar("_T")
_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was when the node was asked. Its methods ask again."""

    id: int
    name: str
    state: TaskState
    reason: str
    exit_code: int | None
    signal: int | None
    devices: tuple[str, ...]
    attempt: int

    def refresh(self) -> Job:
        """The job as it is now.

        Raises:
            ConnectionError: If no node answers.
            RequestError: If there is no such job any more.
        """
        return _job(run(_get(f"/treadle/v1/jobs/{self.id}")))

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until it is over.

        Args:
            timeout: Seconds, at most; no limit unless given.

        Raises:
            TimeoutError: If it is not over by then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            path = f"/treadle/v1/jobs/{self.id}?wait={max(0.0, min(left, _WAIT_SECONDS))}"
            if (job := _job(run(_get(path)))).state.over:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.id} is {job.state} after {timeout:g} s")

    def cancel(self) -> Job:
        """Have it ended, or taken out of the queue."""
        return self._act("cancel")

    def pause(self) -> Job:
        """Hold it where it is: its memory stays."""
        return self._act("pause")

    def resume(self) -> Job:
        """Let it go on."""
        return self._act("resume")

    def output(self, tail: int | None = None) -> str:
        """What it has written, or the last so many lines of that."""
        query = "" if tail is None else f"?tail={tail}"
        data = run(_collect(f"/treadle/v1/jobs/{self.id}/log{query}"))
        return data.decode(errors="replace")

    def _act(self, what: str) -> Job:
        return _job(run(_post(f"/treadle/v1/jobs/{self.id}/{what}", {})))


def submit(
    command: Sequence[str],
    *,
    name: str = "",
    priority: Priority | str = Priority.BACKGROUND,
    memory: int | str | None = None,
    host_memory: int | str | None = None,
    gpus: int | None = None,
    share: float | None = None,
    time_limit: float | str | None = None,
    max_kernel_seconds: float | None = None,
    on_long_kernel: str = "pause",
    retries: int = 0,
    after: Sequence[int | Job] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Job:
    """Queue a command; the node runs it when there is room.

    Args:
        command: The program and its arguments. No shell is used.
        name: For people to read.
        priority: Its class.
        memory: GPU memory that it may have, in bytes or as ``"10GiB"``.
        host_memory: The same of the host.
        gpus: How many; one if there is any, unless given.
        share: Of a GPU that it reserves, or CPU cores.
        time_limit: Seconds, or ``"12h"``, after which it is ended.
        max_kernel_seconds: No kernel of it may run for longer on a GPU.
        on_long_kernel: What is done when one does: ``"report"``, ``"pause"`` or ``"stop"`` the job.
        retries: How often it is tried again if it fails.
        after: Jobs that must have succeeded before.
        env: Variables beside those of this process.
        cwd: The folder to run in; this one unless given.

    Raises:
        ConnectionError: If no node answers.
        RequestError: If the node does not take it; says what is allowed.
    """
    content = submission(
        command,
        name=name,
        priority=priority,
        memory=memory,
        host_memory=host_memory,
        gpus=gpus,
        share=share,
        time_limit=time_limit,
        max_kernel_seconds=max_kernel_seconds,
        on_long_kernel=on_long_kernel,
        retries=retries,
        after=after,
        env={**sendable(os.environ), **(env or {})},
        cwd=cwd,
    )
    (number,) = run(_post("/treadle/v1/jobs", content))["ids"]
    return _job(run(_get(f"/treadle/v1/jobs/{number}")))


def jobs(*, all: bool = False, limit: int = 1000) -> list[Job]:  # noqa: A002 - as on the command line
    """The newest jobs, the newest first: those that wait and run, or all.

    Raises:
        ConnectionError: If no node answers.
    """
    states = [] if all else [str(state) for state in TaskState if not state.over]
    answer = run(_get(f"/treadle/v1/jobs?limit={limit}&states={','.join(states)}"))
    return [_job(job) for job in answer["jobs"]]


def submission(
    command: Sequence[str],
    *,
    name: str,
    priority: Priority | str,
    memory: int | str | None,
    host_memory: int | str | None,
    gpus: int | None,
    share: float | None,
    time_limit: float | str | None,
    max_kernel_seconds: float | None,
    on_long_kernel: str,
    retries: int,
    after: Sequence[int | Job],
    env: Mapping[str, str],
    cwd: str | Path | None,
    array: Sequence[int] = (),
) -> dict[str, Any]:
    """What is sent to queue a job.

    Raises:
        TreadleError: If an argument is wrong; says what is allowed.
    """
    if isinstance(command, str):
        raise TreadleError('a command is a list of words; allowed: ["python", "train.py"]')
    try:
        parsed = priority if isinstance(priority, Priority) else Priority.parse(priority)
    except ValueError as error:
        raise TreadleError(str(error)) from None
    words = (*command, name, str(cwd or ""), *env, *env.values())
    if bad := [word for word in words if not is_text(word)]:
        raise TreadleError(f"{bad[0]!r} is not UTF-8 text: a job cannot have it")
    job = {
        "command": [*command],
        "name": name,
        "priority": parsed.label,
        "memory_bytes": _bytes(memory),
        "host_memory_bytes": _bytes(host_memory),
        "gpus": gpus,
        "share": share,
        "time_limit_seconds": (
            parse_seconds(time_limit) if isinstance(time_limit, str) else time_limit
        ),
        "max_kernel_seconds": max_kernel_seconds,
        "on_long_kernel": on_long_kernel,
        "retries": retries,
        "after": [one.id if isinstance(one, Job) else one for one in after],
        "env": dict(env),
        "cwd": str(Path(cwd or ".").resolve()),
        "umask": _umask(),
    }
    return {"job": job, "array": [*array]}


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, also where an event loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _bytes(amount: int | str | None) -> int | None:
    return parse_bytes(amount) if isinstance(amount, str) else amount


def _umask() -> int:
    """The caller's umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _job(told: Mapping[str, Any]) -> Job:
    return Job(
        id=told["id"],
        name=told["name"],
        state=TaskState(told["state"]),
        reason=told["reason"],
        exit_code=told["exit_code"],
        signal=told["signal"],
        devices=tuple(told["devices"]),
        attempt=told["attempt"],
    )


async def _get(path: str) -> Any:
    async with NodeClient(socket_path()) as client:
        return await client.get(path)


async def _post(path: str, content: Any) -> Any:
    async with NodeClient(socket_path()) as client:
        return await client.post(path, content)


async def _collect(path: str) -> bytes:
    async with NodeClient(socket_path()) as client:
        return b"".join([part async for part in client.stream(path)])
