"""``treadle bench colocation``."""

from __future__ import annotations

import signal
import sys

import typer

from treadle.bench.colocation.cells import known_cells
from treadle.bench.colocation.command import run as measure
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.workloads import Scale
from treadle.errors import ConfigError

_DEVICES = ("cuda", "cpu")


def list_cells() -> None:
    """Print every cell, the one that says most first."""
    typer.echo("\n".join(map(str, known_cells())))


def parse_scale(text: str) -> Scale:
    """Read ``--scale``.

    Raises:
        ConfigError: If there is no such scale.
    """
    if text not in list(Scale):
        raise ConfigError(f"--scale: {text!r}; allowed: {', '.join(Scale)}")
    return Scale(text)


def run(settings: Settings) -> int:
    """Measure, print and save; returns an exit code.

    Raises:
        ConfigError: If an option is not usable.
        TreadleError: If what a measurement or a plot needs is missing.
    """
    if settings.device not in _DEVICES:
        raise ConfigError(f"--device: {settings.device!r}; allowed: {', '.join(_DEVICES)}")
    # So that everything that was started is taken down.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return measure(settings)
