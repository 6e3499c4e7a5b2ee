"""``treadle bench serve``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from treadle.bench.measure import Plan, measure
from treadle.bench.report import print_report
from treadle.bench.results import save, to_json
from treadle.cli.measuring import report_console, results_file, run_measurement
from treadle.errors import ConfigError
from treadle.node.config import load_config
from treadle.schedule import POLICIES


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
    results = run_measurement(partial(measure, plan))
    path = output or results_file("serve")
    save(results, path)
    if as_json:
        typer.echo(to_json(results), nl=False)
        return
    print_report(report_console(), results)
    typer.echo(f"saved: {path}")
