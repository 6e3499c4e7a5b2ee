"""``treadle profile``: how long a model's batches take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from treadle.bench.machine import versions
from treadle.bench.profile import Figures, Place, Wanted, choose, measure
from treadle.cli.show import print_json
from treadle.devices.cpu import cpu_device
from treadle.devices.mps import ClientLimits
from treadle.errors import NotFoundError, TreadleError
from treadle.node.config import NodeConfig, load_config
from treadle.node.gpus import ServingGpus
from treadle.node.monitoring import OFF, NodeMonitor
from treadle.node.paths import make_private, state_folder
from treadle.node.profiles import ModelProfiles
from treadle.predict.profile import Profile, write_profile
from treadle.schedule import POLICIES
from treadle.serve.config import ModelConfig
from treadle.serve.profiles import usual_path, why_impossible
from treadle.serve.repository import NICE, Repository
from treadle.turnstile import default_folder

_PACKAGES = ("torch", "onnxruntime", "numpy")
Number = TypeVar("Number", int, float)


def run(
    name: str,
    *,
    file: Path,
    rows: str | None,
    shares: str | None,
    seconds: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure a model of a configuration, and keep the figures where the node finds them.

    Raises:
        ConfigError: If the configuration is wrong.
        TreadleError: If an option is, or nothing could be measured.
    """
    config = load_config(file)
    model = _find(config, file, name)
    wanted = choose(
        model,
        None if rows is None else _numbers(rows, "--rows", int),
        None if shares is None else _numbers(shares, "--sm-share", float),
        seconds,
    )
    with _Bar(len(wanted.rows) * len(wanted.shares)) as bar:
        profile, figures = asyncio.run(
            _measure(config, model, file.resolve().parent, wanted, bar.step)
        )
    if output is None:
        path = usual_path(profile.subject, state_folder())
        make_private(path.parent)
    else:
        path = output
    write_profile(profile, path)
    if as_json:
        print_json({**msgspec.to_builtins(profile), "file": str(path)})
        return
    notes = [f"left out: {reason}" for reason in figures.left_out]
    if figures.free:
        notes.append(f"dimensions of any size were 1, in {', '.join(figures.free)}")
    if impossible := why_impossible(model, profile):
        notes.append(impossible)
    notes.append(f"written to {path}")
    Console(markup=False).print(_table(profile))
    typer.echo("\n".join(notes))


async def _measure(
    config: NodeConfig,
    model: ModelConfig,
    folder: Path,
    wanted: Wanted,
    on_step: Callable[[str, int], None],
) -> tuple[Profile, Figures]:
    monitor = NodeMonitor(OFF if model.device == "cpu" else config.node.devices)
    monitor.start()
    try:
        device = cpu_device()
        gpus = ServingGpus(monitor.snapshot, default_folder(), _in_turns)
        subject = await ModelProfiles(gpus, device, folder, state_folder()).subject(model)
        nice = NICE[model.priority_class] if POLICIES[config.schedule.policy]().preempts else 0
        place = Place(
            setup=Repository.setup_of(model, device, folder),
            environment=await gpus.environment(
                model.device_name, model.worker_name, model.priority_class, model.env
            ),
            nice=nice,
        )
        figures = await measure(model, wanted, place, on_step)
        driver = "" if model.device == "cpu" else (await gpus.device(model.device_name)).driver
        profile = Profile(
            subject=subject,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            driver=driver,
            versions=versions(_PACKAGES),
            inputs=figures.inputs,
            points=tuple(figures.points),
            left_out=tuple(figures.left_out),
        )
        return profile, figures
    finally:
        await monitor.close()


async def _in_turns(uuid: str, limits: ClientLimits) -> Mapping[str, str]:
    """Nothing: a GPU is measured as one whose users take turns."""
    return {}


class _Bar:
    """Shows on a terminal how far it is; elsewhere it is silent."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            refresh_per_second=2,  # each refresh takes time from what is measured
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, text: str, done: int) -> None:
        self._progress.update(self._task, description=text, completed=done)


def _find(config: NodeConfig, file: Path, name: str) -> ModelConfig:
    for model in config.model:
        if model.name == name:
            return model
    there = ", ".join(model.name for model in config.model) or "none"
    raise NotFoundError(f"{file} has no model {name!r}; there: {there}")


def _numbers(text: str, option: str, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise TreadleError(f"{option} {text}; allowed: numbers with commas between") from None


def _table(profile: Profile) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    by_share = profile.shares != [1.0]
    titles = ["ROWS", *(["SM SHARE"] if by_share else []), "MEDIAN", "P95", "ROWS/S", "RUNS"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for point in profile.points:
        table.add_row(
            str(point.rows),
            *([f"{point.sm_share:g}"] if by_share else []),
            f"{point.median_seconds * 1000:.3g} ms",
            f"{point.p95_seconds * 1000:.3g} ms",
            f"{point.rows_per_second:,.0f}",
            str(point.runs),
        )
    return table
