"""``treadle run``: a program under the gate, in the foreground, without a node."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import typer

from treadle.cli.exits import Exit
from treadle.errors import TreadleError, UnavailableError
from treadle.progress import VARIABLE, prepare
from treadle.turnstile import TurnstileError, default_folder
from treadle.turnstile.folder import check_folder
from treadle.turnstile.launch import GateOptions, gate_environment, why_no_effect
from treadle.types import Priority
from treadle.units import parse_bytes


def run(
    command: list[str],
    *,
    priority: str,
    memory: str | None,
    gpus: str | None,
    name: str | None,
    p99: float | None = None,
    latency_from: str | None = None,
) -> None:
    """Become the program. It keeps the terminal, the streams and the signals: it is this process.

    Raises:
        TreadleError: If an option is wrong.
    """
    try:
        parsed = Priority.parse(priority)
    except ValueError as error:
        raise TreadleError(f"--priority: {error}") from None
    options = GateOptions(
        priority=parsed,
        folder=default_folder(),
        name=name or Path(command[0]).name,
        memory_bytes=None if memory is None else parse_bytes(memory),
        gpus=gpus,
    )
    if (p99 is None) != (latency_from is None):
        raise TreadleError("--p99 and --latency-from belong together: what is wanted, and what is")
    environment = dict(os.environ)
    try:
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(options.folder)
        with contextlib.suppress(OSError):  # without a place for reports it runs as well
            environment[VARIABLE] = str(prepare(options.folder, os.getpid()))
        environment |= gate_environment(options)
    except (TurnstileError, OSError) as error:
        _warn(f"not gated: {error}")
    else:
        if reason := why_no_effect(command[0]):
            _warn(f"not gated: {reason}")
    if p99 is not None and latency_from is not None:
        _ask_for(options.name, parsed, p99, latency_from)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted
    except FileNotFoundError:
        _warn(f"{command[0]}: command not found")
        raise typer.Exit(Exit.NOT_FOUND) from None
    except OSError as error:  # no permission, a folder, not a program
        _warn(f"{command[0]}: {error.strerror}")
        raise typer.Exit(Exit.NOT_EXECUTABLE) from None


def _ask_for(name: str, priority: Priority, p99: float, latency_from: str) -> None:
    """Have the node steer by the latencies of this process: it stays the same one.

    Raises:
        TreadleError: If the node does not take it; says what is allowed.
    """
    import asyncio

    from treadle.client.node import NodeClient
    from treadle.node.paths import socket_path

    content = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:100] or "program",
        "priority": priority.label,
        "p99_seconds": p99,
        "latency_from": latency_from,
    }

    async def ask() -> None:
        async with NodeClient(socket_path()) as client:
            await client.post("/treadle/v1/objectives", content)

    try:
        asyncio.run(ask())
    except (ConnectionError, UnavailableError) as error:
        _warn(f"nobody steers by --p99: {error}")


def _warn(text: str) -> None:
    typer.echo(f"treadle run: {text}", err=True)
