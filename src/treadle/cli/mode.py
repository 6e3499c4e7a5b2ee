"""``treadle mode``: how GPUs are shared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from treadle.cli.show import print_json
from treadle.client.node import NodeClient
from treadle.errors import TreadleError
from treadle.node.paths import socket_path
from treadle.types import Mode


def run(gpu: str | None, wanted: str | None, *, restart: bool, as_json: bool) -> None:
    """Print the modes, or change one.

    Raises:
        TreadleError: If there is no such GPU or mode.
    """
    if wanted is not None and wanted not in set(Mode):
        raise TreadleError(f"{wanted!r} is no mode; allowed: {', '.join(Mode)}")
    gpus = asyncio.run(_ask(gpu, wanted, restart=restart))
    if as_json:
        print_json({"gpus": gpus})
        return
    if not gpus:
        typer.echo("the node sees no GPU")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("GPU", "UUID", "MODE", "WANTED", "WHY NOT YET"):
        table.add_column(title)
    for one in gpus:
        table.add_row(str(one["index"]), one["uuid"], one["mode"], one["wanted"], one["reason"])
    Console(markup=False).print(table)


async def _ask(gpu: str | None, wanted: str | None, *, restart: bool) -> list[dict[str, Any]]:
    async with NodeClient(socket_path()) as client:
        status = await client.get("/treadle/v1/status")
        indices = {one["uuid"]: one["index"] for one in status["monitor"]["devices"]}
        answer = await client.get("/treadle/v1/modes")
        gpus = [{"index": indices.get(one["uuid"], "-"), **one} for one in answer["gpus"]]
        if gpu is not None:
            gpus = [_find(gpus, gpu)]
        if wanted is not None:
            if gpu is None:
                raise TreadleError("which GPU? allowed: its number or UUID, then the mode")
            path = f"/treadle/v1/modes/{gpus[0]['uuid']}"
            answer = await client.post(path, {"mode": wanted, "restart": restart})
            changed = next(one for one in answer["gpus"] if one["uuid"] == gpus[0]["uuid"])
            gpus = [{"index": gpus[0]["index"], **changed}]
        return gpus


def _find(gpus: Sequence[dict[str, Any]], text: str) -> dict[str, Any]:
    found = [one for one in gpus if str(one["index"]) == text or one["uuid"].startswith(text)]
    if len(found) != 1:
        there = ", ".join(str(one["index"]) for one in gpus) or "none"
        raise TreadleError(f"there is no GPU {text}; there are: {there}")
    return found[0]
