"""Plays one play in one mode, against a node of its own."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from treadle.bench.loadtest.loads import Load
from treadle.bench.loadtest.measure import Plan, Search, measure
from treadle.bench.loadtest.results import Arrivals, LoadTest
from treadle.bench.loadtest.target import Wanted
from treadle.bench.ownnode import OwnNode
from treadle.bench.serving.plays import Play, configuration
from treadle.bench.serving.rivals.sweep import Tried
from treadle.client.node import NodeClient

_MOST_RATE = 1e6
_TIMEOUT_SECONDS = 10.0
LOAD_SECONDS = 180.0
"""Importing, compiling and capturing take a while."""
_BUSY_METRIC = "DCGM_FI_PROF_SM_ACTIVE"
_LOOK_SECONDS = 1.0


class Settings(Struct, frozen=True, kw_only=True):
    """How everything is played."""

    device: str
    tiny: bool
    seconds: float
    precision: float
    processes: int
    seed: int
    pool: int = 32


class Played(Struct, frozen=True, kw_only=True):
    """What came of it."""

    play: str
    mode: str
    test: LoadTest | None
    standings: dict[str, Any] = {}
    """Of each model, as the node tells it at the end."""
    sm_active: float | None = None
    """Mean of the GPU's, while the load ran; None where nobody knows."""
    setup: str = ""
    """How another server was set up."""
    tried: tuple[Tried, ...] = ()
    """The settings that were tried for it."""
    left_out: str = ""
    """Why another server was not played."""
    failed: str = ""


async def play_once(play: Play, mode: str, settings: Settings, rate_factor: float) -> Played:
    """Serve and load.

    Raises:
        TreadleError: If the node does not come up, or does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="treadle-serving-") as folder:
        file = Path(folder) / "treadle.toml"
        file.write_text(configuration(play, mode, settings.device, tiny=settings.tiny))
        with OwnNode(file) as node:
            async with NodeClient(node.socket) as client:
                await node.wait_ready(client, LOAD_SECONDS)
                busy: list[float] = []
                looking = asyncio.create_task(_look(client, busy))
                try:
                    test = await measure(
                        plan_of(play, settings, rate_factor, socket=node.socket),
                        lambda what, seconds: None,
                    )
                finally:
                    looking.cancel()
                    await asyncio.gather(looking, return_exceptions=True)
                status = await client.get("/treadle/v1/status")
    return Played(
        play=play.name,
        mode=mode,
        test=test,
        standings={model["name"]: model["standing"] for model in status["models"]},
        sm_active=sum(busy) / len(busy) if busy else None,
    )


def plan_of(
    play: Play,
    settings: Settings,
    rate_factor: float,
    *,
    socket: Path | None = None,
    url: str = "",
) -> Plan:
    """How a play is measured, at a node's socket or at a URL."""
    loads = tuple(
        Load(
            model=model.name,
            rate=model.rate * rate_factor,
            p99_seconds=model.p99_seconds,
            priority=model.priority,
        )
        for model in play.models
    )
    name = "bursty" if play.burst else "poisson"
    return Plan(
        wanted=Wanted(
            socket=socket,
            url=url,
            loads=loads,
            connections=2000,
            timeout_seconds=_TIMEOUT_SECONDS,
            tell_timeout=False,
            pool=settings.pool,
            json_bodies=False,
            seed=settings.seed,
        ),
        arrivals=Arrivals(pattern=name, burst=play.burst or None),
        pattern=play.pattern,
        seconds=settings.seconds,
        warm_up_seconds=min(2.0, settings.seconds / 3),
        processes=settings.processes,
        search=Search(precision=settings.precision, most=_MOST_RATE) if play.search else None,
    )


async def _look(client: NodeClient, busy: list[float]) -> None:
    """Note the SMs' activity, once a second."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        text = b"".join([part async for part in client.stream("/metrics")]).decode()
        busy += [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(_BUSY_METRIC + "{")
        ]
