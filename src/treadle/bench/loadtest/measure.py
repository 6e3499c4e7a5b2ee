"""A load test from beginning to end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

from msgspec import Struct

from treadle.bench.arrivals import Pattern, draw_arrivals
from treadle.bench.calibrate import Stage
from treadle.bench.cpu import CpuMeter
from treadle.bench.loadtest.figures import run_of
from treadle.bench.loadtest.find import find_highest
from treadle.bench.loadtest.generator import Generator, LocalGenerator
from treadle.bench.loadtest.judge import judge_of
from treadle.bench.loadtest.results import Arrivals, FoundRate, LoadRun, LoadTest, Verdict
from treadle.bench.loadtest.spread import SpreadGenerator
from treadle.bench.loadtest.target import Server, Wanted, prepare
from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.results import date_now
from treadle.client.node import NodeClient
from treadle.errors import ConfigError, TreadleError

_CONFIRM_TIMES = 3
"""A run that confirms is so many times as long."""
_SETTLE_SECONDS = 30.0
_POLL_SECONDS = 0.1


class Search(Struct, frozen=True, kw_only=True):
    """How to look for the highest rate."""

    precision: float
    most: float
    """Requests per second, all models together."""


class Plan(Struct, frozen=True, kw_only=True):
    """What to measure, and how."""

    wanted: Wanted
    arrivals: Arrivals
    pattern: Pattern
    seconds: float
    warm_up_seconds: float
    processes: int
    search: Search | None = None
    """None: one run at the given rates."""


async def measure(plan: Plan, stage: Stage) -> LoadTest:
    """Put a load on a server, or look for the highest that it bears.

    Raises:
        ConfigError: If the plan does not fit the server.
        ConnectionError: If nobody answers.
        TreadleError: If a model does not answer right before it is under load.
    """
    date, machine = date_now(), describe_machine()
    stage("trying out", 1.0)
    server = await prepare(plan.wanted)
    async with _generator(server, plan) as generator:
        loader = Loader(server, plan, generator, stage)
        run: LoadRun | None
        if plan.search is None:
            run, found = await loader.run(loader.rate), None
        else:
            run, found = await _search(loader, plan.search)
    return LoadTest(
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        target=str(plan.wanted.socket or plan.wanted.url),
        server=server.name,
        arrivals=plan.arrivals,
        seed=plan.wanted.seed,
        seconds=plan.seconds,
        warm_up_seconds=plan.warm_up_seconds,
        timeout_seconds=plan.wanted.timeout_seconds,
        connections=plan.wanted.connections,
        processes=plan.processes,
        loads=server.loads,
        run=run,
        found=found,
    )


class Loader:
    """Runs a load at one rate after another; the models keep their parts of it."""

    def __init__(self, server: Server, plan: Plan, generator: Generator, stage: Stage) -> None:
        self._rates = {load.model: load.rate for load in server.loads if load.rate is not None}
        assert len(self._rates) == len(server.loads), "every load of a plan has a rate"
        self.rate = sum(self._rates.values())
        """That was given, requests per second over all models."""
        self._objectives = {load.model: load.p99_seconds for load in server.loads}
        self._server = server
        self._plan = plan
        self._generator = generator
        self._stage = stage

    @property
    def has_objective(self) -> bool:
        return any(objective is not None for objective in self._objectives.values())

    def rates(self, rate: float) -> dict[str, float]:
        """Requests per second of each model if they are so many together."""
        return {model: part * rate / self.rate for model, part in self._rates.items()}

    async def run(self, rate: float, *, times: int = 1, search: bool = False) -> LoadRun:
        """Run the load at one rate.

        Args:
            rate: Requests per second, all models together.
            times: So many times as long as planned.
            search: It may be given up once an objective is missed for good.
        """
        plan, warm_up = self._plan, self._plan.warm_up_seconds
        seconds = warm_up + plan.seconds * times
        rates = self.rates(rate)
        schedule = draw_arrivals(rates, seconds, plan.wanted.seed, plan.pattern)
        objectives = [self._objectives[model] for model in schedule.models]
        self._stage(f"{rate:.4g} requests/s", seconds)
        judge = judge_of(schedule, objectives, warm_up) if search else None
        pids = self._server.pids if plan.processes == 1 else None
        meter = None if pids is None else CpuMeter(pids)
        recording = await self._generator.run(schedule, judge)
        return run_of(
            recording,
            rate,
            objectives,
            warm_up,
            cpu=meter.use() if meter else None,
            whole=not search or times > 1,
        )

    async def settle(self) -> None:
        """Wait until the server has left a load that was too high behind it.

        Raises:
            TreadleError: If it does not answer any more.
        """
        end = time.monotonic() + _SETTLE_SECONDS
        self._stage("waiting until the server is idle", _SETTLE_SECONDS)
        async with self._server.target.client() as client:
            for model, objective in self._objectives.items():
                while not await self._answers(client, model, objective):
                    if time.monotonic() >= end:
                        raise TreadleError(
                            f"model '{model}' does not answer in time any more, "
                            f"{_SETTLE_SECONDS:g} s after a load that was too high"
                        )
                    await asyncio.sleep(_POLL_SECONDS)

    async def _answers(self, client: NodeClient, model: str, objective: float | None) -> bool:
        """Whether a single request is answered in time."""
        body = self._server.target.models[model].bodies[0]
        limit = objective or self._plan.wanted.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return (await client.ask(model, body)).status == HTTPStatus.OK
        except OSError:  # a timeout, too
            return False


async def _search(loader: Loader, search: Search) -> tuple[LoadRun | None, FoundRate]:
    if not loader.has_objective:
        raise ConfigError("--find: no model has an objective: --p99, or MODEL:p99=…")
    trials: list[LoadRun] = []
    confirmed: LoadRun | None = None

    async def trial(rate: float, *, confirm: bool) -> Verdict:
        nonlocal confirmed
        run = await loader.run(rate, times=_CONFIRM_TIMES if confirm else 1, search=True)
        if confirm and run.verdict is Verdict.HELD:
            confirmed = run
        else:
            trials.append(run)
        if run.verdict is not Verdict.HELD:
            await loader.settle()
        return run.verdict or Verdict.INVALID

    bracket = await find_highest(
        trial, start=loader.rate, precision=search.precision, most=search.most
    )
    return confirmed, FoundRate(
        precision=search.precision,
        rate=bracket.holds,
        rates={} if bracket.holds is None else loader.rates(bracket.holds),
        fails_at=bracket.fails,
        limited_by=bracket.limited_by,
        trials=tuple(trials),
    )


@contextlib.asynccontextmanager
async def _generator(server: Server, plan: Plan) -> AsyncIterator[Generator]:
    generator: LocalGenerator | SpreadGenerator
    if plan.processes == 1:
        generator = LocalGenerator(server.target)
    else:
        generator = SpreadGenerator(server.target, plan.processes)
    async with generator:
        yield generator
