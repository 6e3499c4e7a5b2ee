"""``treadle submit``: a command into the queue."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from treadle.cli.jobs import parse_numbers, wait_for
from treadle.cli.show import print_json
from treadle.client.jobs import submission
from treadle.client.node import NodeClient
from treadle.errors import TreadleError
from treadle.node.paths import socket_path
from treadle.programs.spec import sendable

_MOST_OF_AN_ARRAY = 100_000
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ")


def run(
    command: Sequence[str],
    *,
    name: str,
    priority: str,
    memory: str | None,
    host_memory: str | None,
    gpus: int | None,
    share: float | None,
    time_limit: str | None,
    max_kernel_seconds: float | None,
    on_long_kernel: str,
    retries: int,
    after: Sequence[str],
    env: Sequence[str],
    clean_env: bool,
    cwd: Path | None,
    array: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Queue it, say its number, and wait if told to.

    Raises:
        TreadleError: If an option is wrong.
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
        after=[number for text in after for number in parse_numbers([text])],
        env=_environment(os.environ, env, clean=clean_env),
        cwd=cwd,
        array=parse_array(array) if array is not None else (),
    )
    ids = asyncio.run(_send(content))
    if as_json:
        print_json({"ids": ids})
    else:
        several = len(ids) > 1
        typer.echo(f"jobs {ids[0]}-{ids[-1]}" if several else f"job {ids[0]}")
    if wait:
        wait_for(ids, None)


def parse_array(text: str) -> list[int]:
    """Read the numbers of an array: ``0-99``, ``0-9:3``, ``1,5,7-9``.

    Raises:
        TreadleError: If they are none, or too many.
    """
    numbers: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
        if found is None or found[3] == "0":
            raise TreadleError(f"--array: {text!r}; allowed: 0-99, 0-9:3, 1,5,7-9")
        first, last = int(found[1]), int(found[2] or found[1])
        chosen = range(first, last + 1, int(found[3] or 1))
        if not chosen or len(numbers) + len(chosen) > _MOST_OF_AN_ARRAY:
            raise TreadleError(f"--array: {text!r}; allowed: 1 to {_MOST_OF_AN_ARRAY} numbers")
        numbers += chosen
    return numbers


def _environment(own: Mapping[str, str], given: Sequence[str], *, clean: bool) -> dict[str, str]:
    found = {n: v for n, v in own.items() if not clean or n in _KEPT}
    kept = sendable(found)
    if odd := sorted(found.keys() - kept.keys()):
        typer.echo(f"treadle submit: left out, not UTF-8 text: {odd!a}", err=True)
    found = kept
    for text in given:
        name, equals, value = text.partition("=")
        if not name:
            raise TreadleError(f"--env: {text!r}; allowed: NAME=VALUE, or NAME to hand it on")
        if not equals and name not in own:
            raise TreadleError(f"--env: {name} is not set here; allowed: {name}=VALUE")
        found[name] = value if equals else own[name]
    return found


async def _send(content: Mapping[str, Any]) -> list[int]:
    async with NodeClient(socket_path()) as client:
        ids: list[int] = (await client.post("/treadle/v1/jobs", content))["ids"]
    return ids
