"""The measurement from beginning to end: nodes, calibration, load, figures."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from treadle.bench.arrivals import Schedule, draw_arrivals
from treadle.bench.calibrate import Effort, Stage, calibrate, parse_mix, warm_up
from treadle.bench.cpu import CpuMeter, pids_of
from treadle.bench.figures import busy_warnings, compare, run_of
from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.openloop import drive
from treadle.bench.ownnode import OwnNode
from treadle.bench.results import Calibration, Results, Run, date_now
from treadle.bench.timer import KernelTimer
from treadle.bench.traffic import ModelTraffic, Sender, read_traffic
from treadle.client.node import NodeClient
from treadle.errors import ConfigError
from treadle.node.paths import socket_path

_STATUS = "/treadle/v1/status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure, and how."""

    file: Path | None = None
    """Configuration of nodes to start; None for the node that runs."""
    policies: tuple[str, ...] = ()
    """One node each; the configured one if there are none."""
    load: float = 0.9
    """Offered load as a part of the capacity."""
    rate: float | None = None
    """Requests per second over all models, in place of ``load``."""
    seconds: float = 30.0
    mix: tuple[str, ...] = ()
    """``MODEL=PART`` of the device's time, in relation to each other; 1 unless given."""
    seed: int = 42
    drain_seconds: float = 30.0
    """How long to wait for answers after the last arrival."""
    effort: Effort = field(default_factory=Effort)


async def measure(plan: Plan, stage: Stage) -> Results:
    """Drive a node, or one for each policy, and sum up.

    Raises:
        ConfigError: If the plan does not fit the node.
        StartError: If a node cannot be started.
        ConnectionError: If no node runs, and none should be started.
        TreadleError: If a model fails before it is under load.
    """
    if plan.file is None and plan.policies:
        raise ConfigError("--policy is for nodes that are started here: give FILE.toml, too")
    date, machine = date_now(), describe_machine()
    calibration: Calibration | None = None
    runs: list[Run] = []
    for policy in plan.policies or (None,):
        async with _connect(plan.file, policy, stage) as client:
            name = (await client.get(_STATUS))["policy"]
            traffic = await read_traffic(client)
            if calibration is None:
                calibration = await _calibrate(client, traffic, plan, name, stage)
                schedule = draw_arrivals(_rates(calibration, plan), plan.seconds, plan.seed)
            else:
                shares, clients = calibration.proportions, calibration.clients
                await warm_up(client, traffic, shares, clients, plan.effort, stage)
            runs.append(await _run(client, traffic, schedule, plan, name, stage))
    assert calibration is not None
    return Results(
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        seed=plan.seed,
        seconds=plan.seconds,
        load=plan.load if plan.rate is None else None,
        rates=_rates(calibration, plan),
        calibration=calibration,
        runs=tuple(runs),
        comparisons=compare(runs),
    )


@contextlib.asynccontextmanager
async def _connect(
    file: Path | None, policy: str | None, stage: Stage
) -> AsyncIterator[NodeClient]:
    """A client of a node of our own, started with ``file``; without, of the one that runs."""
    if file is None:
        async with NodeClient(socket_path(), connections=0) as client:
            yield client
        return
    with OwnNode(file, policy) as node:
        async with NodeClient(node.socket, connections=0) as client:
            stage("starting a node", 5.0)
            await node.wait_ready(client)
            yield client


async def _calibrate(
    client: NodeClient, traffic: Sequence[ModelTraffic], plan: Plan, policy: str, stage: Stage
) -> Calibration:
    parts = parse_mix(plan.mix, [model.name for model in traffic])
    meter = CpuMeter(pids_of(await client.get(_STATUS)))
    calibration = await calibrate(
        client, traffic, parts, plan.effort, stage, measure_capacity=plan.rate is None
    )
    cpu = meter.use()
    return replace(calibration, policy=policy, cpu=cpu, warnings=busy_warnings(cpu))


def _rates(calibration: Calibration, plan: Plan) -> dict[str, float]:
    total = plan.rate
    if total is None:
        assert calibration.capacity_requests_per_second is not None
        total = plan.load * calibration.capacity_requests_per_second
    return {name: total * part for name, part in calibration.proportions.items()}


async def _run(
    client: NodeClient,
    traffic: Sequence[ModelTraffic],
    schedule: Schedule,
    plan: Plan,
    policy: str,
    stage: Stage,
) -> Run:
    stage(f"{policy}: {len(schedule) / plan.seconds:.1f} requests/s", plan.seconds)
    meter = CpuMeter(pids_of(await client.get(_STATUS)))
    with KernelTimer() as timer:
        recording = await drive(schedule, Sender(client, traffic), timer, plan.drain_seconds)
    models = {m.name: m for m in traffic if m.name in schedule.models}
    return run_of(policy, recording, models, meter.use())
