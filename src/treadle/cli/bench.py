"""``treadle bench serve``."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import typer
import uvloop
from rich.console import Console

from treadle.bench.measure import Plan, measure
from treadle.bench.progress import ProgressDisplay
from treadle.bench.report import print_report
from treadle.bench.results import Results, save, to_json
from treadle.errors import ConfigError
from treadle.node.config import load_config
from treadle.node.paths import state_folder
from treadle.schedule import POLICIES

_NO_TERMINAL_WIDTH = 120


def run(
    file: Path | None,
    *,
    policies: list[str],
    load: float,
    rate: float | None,
    seconds: float,
    mix: list[str],
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure, print and save.

    Raises:
        ConfigError: If the file or an option is not usable.
        StartError: If a node cannot be started.
        ConnectionError: If there is no file, and no node runs.
        TreadleError: If a model fails before it is under load, or the results cannot be saved.
    """
    for policy in policies:
        if policy not in POLICIES:
            raise ConfigError(f"--policy: {policy!r}; allowed: {', '.join(POLICIES)}")
    if file is not None:
        load_config(file)  # says what is wrong at once
    plan = Plan(
        file=file,
        policies=tuple(policies),
        load=load,
        rate=rate,
        seconds=seconds,
        mix=tuple(mix),
        seed=seed,
    )
    results = run_plan(plan)
    path = output or state_folder() / "bench" / f"serve-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    save(results, path)
    if as_json:
        typer.echo(to_json(results), nl=False)
        return
    print_report(report_console(), results)
    typer.echo(f"saved: {path}")


def run_plan(plan: Plan) -> Results:
    """Measure, with a progress bar on standard error if that is a terminal."""
    _raise_file_limit()
    with (
        ProgressDisplay(Console(stderr=True)) as display,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_until_told_to_end(plan, display))


def report_console() -> Console:
    """Standard output, wide enough for the tables also where it is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_NO_TERMINAL_WIDTH)


async def _until_told_to_end(plan: Plan, display: ProgressDisplay) -> Results:
    """Let a signal end the measurement as Ctrl-C does: nodes that were started end, too."""
    measuring = asyncio.create_task(measure(plan, display.stage))
    told: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        told.append(number)
        measuring.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await measuring
    except asyncio.CancelledError:
        if told:
            sys.exit(128 + told[0])
        raise


def _raise_file_limit() -> None:
    """Every connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
