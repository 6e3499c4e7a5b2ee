"""``treadle status``, ``models`` and ``down``: the running node, seen from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import orjson
import typer
from rich.console import Console, Group
from rich.table import Table

from treadle.cli.statusview import render
from treadle.client.node import NodeClient
from treadle.errors import TreadleError
from treadle.node.paths import socket_path

_POLL_SECONDS = 0.05


def status(*, as_json: bool) -> None:
    """Print what the node says of itself."""
    answer = asyncio.run(_get_status())
    if as_json:
        print_json(answer)
        return
    Console(markup=False).print(render(answer, _table(answer["models"])))


def models(*, as_json: bool) -> None:
    """Print a table of the node's models."""
    answer = asyncio.run(_get_status())["models"]
    if as_json:
        print_json(answer)
    else:
        Console(markup=False).print(_table(answer))


def down(*, timeout_seconds: float, now: bool) -> None:
    """Stop the node and wait until it has ended.

    Raises:
        TreadleError: If it has not ended in time.
    """
    pid, jobs = asyncio.run(_stop(twice=now))
    ended = time.monotonic() + timeout_seconds
    # The node is not our child, so its end can only be looked for.
    while _is_running(pid):
        if time.monotonic() > ended:
            raise TreadleError(
                f"the node (pid {pid}) still finishes what it accepted after "
                f"{timeout_seconds:g} s; treadle down --now ends it at once"
            )
        time.sleep(_POLL_SECONDS)
    typer.echo(f"node {pid} has ended" + (f"; jobs that run on: {jobs}" if jobs else ""))


def print_json(content: Any) -> None:
    """Print indented JSON."""
    typer.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


async def _get_status() -> dict[str, Any]:
    async with NodeClient(socket_path()) as client:
        answer: dict[str, Any] = await client.get("/treadle/v1/status")
        return answer


async def _stop(*, twice: bool) -> tuple[int, int]:
    """Tell the node to end; its pid, and how many jobs do not end with it."""
    async with NodeClient(socket_path()) as client:
        counts = (await client.get("/treadle/v1/status"))["jobs"]["counts"]
        pid: int = (await client.post("/treadle/v1/stop"))["pid"]
    if twice and _is_running(pid):
        os.kill(pid, signal.SIGTERM)
    return pid, sum(counts.values()) - counts.get("queued", 0)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


_RIGHT = ("GOAL", "P99", "WITHIN", "ROWS", "WAIT", "ANSWERED", "MISSED")


def _table(models: list[dict[str, Any]]) -> Group:
    """P99 and the part within the goal are of the last minute, rows of the last batches.

    Why a model is not there, or requests were turned away, stands below.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("MODEL", "PRIORITY", "STATE", *_RIGHT):
        table.add_column(title, justify="right" if title in _RIGHT else "left", no_wrap=True)
    reasons = []
    for model in models:
        now = model["standing"]
        table.add_row(
            model["name"],
            model["priority"],
            model["state"].lower(),
            _milliseconds(model["p99_seconds"]),
            _milliseconds(now["p99_seconds"]),
            "-" if now["within"] is None else f"{now['within']:.1%}",
            "-" if now["batch_rows"] is None else f"{now['batch_rows']:.3g}",
            str(model["waiting"]),
            str(model["answered"]),
            str(sum(one["count"] for one in now["refused"].values())),
        )
        if reason := model["reason"] or _why_missed(now["refused"]):
            reasons.append(f"{model['name']}: {reason}")
        reasons += [f"{model['name']}: {note}" for note in model["notes"]]
    return Group(table, *reasons)


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _why_missed(refused: dict[str, Any]) -> str:
    return "; ".join(f"{one['count']} {outcome}: {one['last']}" for outcome, one in refused.items())
