"""``treadle jobs``, ``show``, ``logs``, ``wait``, ``cancel``, ``pause``, ``resume``."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from treadle.cli.exits import Exit
from treadle.cli.show import print_json
from treadle.cli.statusview import duration
from treadle.client.node import NodeClient
from treadle.errors import TreadleError
from treadle.node.paths import socket_path
from treadle.types import TaskState

_MOST_NUMBERS = 100_000
_WAIT_SECONDS = 30.0
_GIB = 1 << 30


def jobs(*, all_: bool, states: Sequence[str], mine: bool, limit: int, as_json: bool) -> None:
    """Print a table of jobs."""
    wanted = states or ([] if all_ else [state for state in TaskState if not state.over])
    query = f"?limit={limit}&states={','.join(wanted)}" + ("&mine=1" if mine else "")
    answer = asyncio.run(_get(f"/treadle/v1/jobs{query}"))
    if as_json:
        print_json(answer)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("JOB", "NAME", "USER", "PRIORITY", "STATE", "TIME", "WHERE", "WHY"):
        table.add_column(title, justify="right" if title in ("JOB", "TIME") else "left")
    for job in answer["jobs"]:
        table.add_row(
            str(job["id"]),
            _name(job),
            job["user"] or str(job["uid"]),
            job["spec"].get("priority", "background"),
            job["state"],
            duration(_age(job)),
            " ".join(uuid[:12] for uuid in job["devices"]) or "-",
            _why(job),
        )
    Console(markup=False).print(table)
    counts = ", ".join(f"{count} {state}" for state, count in answer["counts"].items())
    typer.echo(f"\n{counts or 'no jobs wait or run'}")


def show(number: str, *, as_json: bool) -> None:
    """Print what is known of a job."""
    (job_number,) = parse_numbers([number], most=1)
    job, control = asyncio.run(_get_with_control(job_number))
    if as_json:
        print_json({**job, "control": control})
        return
    spec = job["spec"]
    memory = spec.get("memory_bytes")
    lines = {
        "job": f"{job['id']}, {_name(job)}",
        "state": f"{job['state']}{', ' + job['reason'] if job['reason'] else ''}",
        "exit": _exit_text(job),
        "command": shlex.join(spec["command"]),
        "folder": spec.get("cwd", ""),
        "user": f"{job['user'] or job['uid']}, submitted by process {job['peer_pid']}",
        "priority": spec.get("priority", "background"),
        "devices": ", ".join(job["devices"]),
        "memory": f"{memory / _GIB:.3g} GiB" if memory else "no limit",
        "host": job["bounds"],
        "progress": _progress(job),
        "time limit": duration(spec.get("time_limit_seconds")),
        "kernels": _kernels(spec),
        "after": ", ".join(map(str, spec.get("after", []))),
        "attempt": f"{job['attempt']}; {job['failures']} failed, {spec.get('retries', 0)} retries",
    }
    for title, text in lines.items():
        if text and text != "-":
            typer.echo(f"{title:<11}{text}")
    typer.echo()
    for entry in job["history"]:
        at = datetime.fromtimestamp(entry["at"]).astimezone()
        typer.echo(f"{at:%Y-%m-%d %H:%M:%S}  {entry['state']:<10} {entry['reason']}".rstrip())
    for gpu in control:
        _print_control(gpu)


def _print_control(gpu: dict[str, Any]) -> None:
    """The knobs of a GPU that the job is on, and why they are as they are."""
    typer.echo(f"\n{gpu['uuid']}: {gpu['trouble'] or gpu['reason']}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("KNOB", "NOW", "RANGE", "UNIT", "WHAT"):
        table.add_column(title)
    for knob in gpu["knobs"]:
        span = f"{knob['least']:g} to {knob['most']:g}"
        table.add_row(knob["name"], f"{knob['value']:g}", span, knob["unit"], knob["help"])
    Console(markup=False).print(table)


def logs(number: str, *, follow: bool, tail: int | None) -> None:
    """Print a job's output, as bytes."""
    (job_number,) = parse_numbers([number], most=1)
    query = ("&follow=1" if follow else "") + (f"&tail={tail}" if tail is not None else "")
    asyncio.run(_copy_out(f"/treadle/v1/jobs/{job_number}/log?{query}"))


def wait(numbers: Sequence[str], *, timeout_seconds: float | None) -> None:
    """Wait for jobs; exits with the code of the first that failed."""
    wait_for(parse_numbers(numbers), timeout_seconds)


def wait_for(numbers: Sequence[int], timeout_seconds: float | None) -> None:
    """Wait until jobs are over.

    Raises:
        typer.Exit: With the code of the first of them that did not succeed, or 124 after a while.
    """
    code = asyncio.run(_wait(numbers, timeout_seconds))
    if code:
        raise typer.Exit(code)


def act(what: str, numbers: Sequence[str]) -> None:
    """Cancel, pause or resume jobs; one that cannot be does not keep the others from it.

    Raises:
        TreadleError: If it could not be done for all.
    """
    problems = asyncio.run(_act(what, parse_numbers(numbers)))
    if problems:
        raise TreadleError("; ".join(problems))


def parse_numbers(texts: Sequence[str], most: int = _MOST_NUMBERS) -> list[int]:
    """Read numbers of jobs: ``17``, ``17-26``.

    Raises:
        TreadleError: If one is none.
    """
    numbers: list[int] = []
    for text in texts:
        first, dash, last = text.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise TreadleError(f"{text!r} is no job; allowed: its number, or 17-26 for several")
        chosen = range(int(first), int(last if dash else first) + 1)
        if not chosen or len(numbers) + len(chosen) > most:
            raise TreadleError(f"{text!r}; allowed: 1 to {most} jobs")
        numbers += chosen
    return numbers


async def _get_with_control(number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A job, and what turns the knobs of the GPUs that it is on."""
    async with NodeClient(socket_path()) as client:
        job = await client.get(f"/treadle/v1/jobs/{number}?history=1")
        if TaskState(job["state"]).over:
            return job, []
        status = await client.get("/treadle/v1/status")
    return job, [gpu for gpu in status["jobs"]["control"] if gpu["uuid"] in job["devices"]]


async def _get(path: str) -> Any:
    async with NodeClient(socket_path()) as client:
        return await client.get(path)


async def _copy_out(path: str) -> None:
    async with NodeClient(socket_path()) as client:
        async for part in client.stream(path):
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


async def _wait(numbers: Sequence[int], timeout_seconds: float | None) -> int:
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    code = 0
    async with NodeClient(socket_path()) as client:
        for number in numbers:
            while True:
                left = _WAIT_SECONDS
                if deadline is not None:
                    left = min(left, deadline - time.monotonic())
                job = await client.get(f"/treadle/v1/jobs/{number}?wait={max(0.0, left)}")
                if TaskState(job["state"]).over:
                    break
                if left <= 0:
                    typer.echo(f"job {number} is {job['state']}", err=True)
                    return Exit.TIMED_OUT
            typer.echo(f"job {number} {job['state']}{_reason(job)}", err=True)
            code = code or _code(job)
    return code


async def _act(what: str, numbers: Sequence[int]) -> list[str]:
    problems = []
    async with NodeClient(socket_path()) as client:
        for number in numbers:
            try:
                job = await client.post(f"/treadle/v1/jobs/{number}/{what}")
            except TreadleError as error:
                problems.append(str(error))
            else:
                typer.echo(f"job {number} {_after(what, job)}")
    return problems


def _after(what: str, job: dict[str, Any]) -> str:
    if TaskState(job["state"]).over:
        return f"is {job['state']}"
    return {"cancel": "is being ended", "pause": "is being paused", "resume": "goes on"}[what]


def _code(job: dict[str, Any]) -> int:
    """The exit code that stands for how a job ended."""
    if job["state"] == "finished":
        return 0
    if job["signal"]:
        return 128 + int(job["signal"])
    return int(job["exit_code"] or 0) or int(Exit.FAILED)


def _progress(job: dict[str, Any]) -> str:
    """What it has reported itself."""
    told = job.get("progress")
    if not told:
        return ""
    loss = "" if told["loss"] is None else f", loss {told['loss']:.4g}"
    rate = ""
    if job["started_at"] and (age := time.time() - job["started_at"]) > 1:
        rate = f", {told['samples'] / age:.3g} a second"
    return f"{told['samples']:g} samples{rate}{loss}; {duration(told['seconds_ago'])} ago"


def _kernels(spec: dict[str, Any]) -> str:
    """For how long each may run, and what is done otherwise."""
    limit = spec.get("max_kernel_seconds")
    if limit is None:
        return ""
    return f"at most {limit:g} s each, else {spec.get('on_long_kernel', 'pause')}"


def _name(job: dict[str, Any]) -> str:
    index = job["spec"].get("array_index")
    return str(job["name"]) if index is None else f"{job['name']}[{index}]"


def _reason(job: dict[str, Any]) -> str:
    return f": {job['reason']}" if job["reason"] else ""


def _why(job: dict[str, Any]) -> str:
    return str(job["reason"]) or _exit_text(job).replace("-", "")


def _exit_text(job: dict[str, Any]) -> str:
    if job["signal"]:
        return f"signal {job['signal']}"
    return "-" if job["exit_code"] is None else f"exit code {job['exit_code']}"


def _age(job: dict[str, Any]) -> float | None:
    """How long it has run, or waited."""
    if job["started_at"] is None:
        return time.time() - job["submitted_at"] if job["state"] == "queued" else None
    return float((job["ended_at"] or time.time()) - job["started_at"])
