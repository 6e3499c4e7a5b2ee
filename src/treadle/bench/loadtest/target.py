"""Asks a server what it serves, and makes what it will be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from treadle.bench.cpu import pids_of
from treadle.bench.loadtest.bodies import make_bodies
from treadle.bench.loadtest.generator import Target
from treadle.bench.loadtest.loads import Load
from treadle.bench.loadtest.sender import ModelBodies, try_out
from treadle.client.node import NodeClient
from treadle.errors import ConfigError

_STATUS = "/treadle/v1/status"


class Wanted(Struct, frozen=True, kw_only=True):
    """What shall be sent, and where to."""

    socket: Path | None
    """A node's local socket; None: ``url``."""
    url: str
    loads: tuple[Load, ...]
    connections: int
    timeout_seconds: float
    """After which the sender waits no longer."""
    tell_timeout: bool
    """Whether the server is told so."""
    pool: int
    """How many random bodies there are where nothing else is given."""
    json_bodies: bool
    seed: int


class Server(Struct, frozen=True, kw_only=True):
    """A server that has answered, and the load as it will be."""

    name: str
    loads: tuple[Load, ...]
    """With the objectives that the server has for its models where none was given."""
    target: Target
    pids: tuple[int, ...] | None
    """Of the node's processes; None for a server elsewhere."""


async def prepare(wanted: Wanted) -> Server:
    """Read what each model takes, make its bodies and try them out.

    Raises:
        ConfigError: If a model is not served.
        ConnectionError: If nobody answers.
        RequestError: If an input does not fit its model.
        TreadleError: If an answer is not right.
    """
    empty = Target(
        socket=wanted.socket,
        url=wanted.url,
        connections=wanted.connections,
        timeout_seconds=wanted.timeout_seconds,
        models={},
    )
    async with empty.client() as client:
        about = await client.get("/v2")
        status = await client.get(_STATUS) if wanted.socket else None
        told = {model["name"]: model for model in status["models"]} if status else {}
        loads, models = [], {}
        for load in wanted.loads:
            if told and load.model not in told:
                raise ConfigError(f"no model '{load.model}'; there are {', '.join(told)}")
            known = told.get(load.model, {})
            loads.append(_with_objective(load, known))
            models[load.model] = await _bodies(client, load, known.get("examples", ()), wanted)
    return Server(
        name=f"{about.get('name', 'unnamed')} {about.get('version', '')}".strip(),
        loads=tuple(loads),
        target=replace(empty, models=models),
        pids=tuple(pids_of(status)) if status else None,
    )


async def _bodies(
    client: NodeClient, load: Load, examples: Sequence[str], wanted: Wanted
) -> ModelBodies:
    bodies = make_bodies(
        await client.get(f"/v2/models/{load.model}"),
        load,
        examples,
        pool=wanted.pool,
        seed=wanted.seed,
        timeout_seconds=wanted.timeout_seconds if wanted.tell_timeout else None,
        as_json=wanted.json_bodies,
    )
    return await try_out(client, load.model, ModelBodies(bodies=bodies))


def _with_objective(load: Load, known: Mapping[str, Any]) -> Load:
    return replace(load, p99_seconds=load.p99_seconds or known.get("p99_seconds"))
