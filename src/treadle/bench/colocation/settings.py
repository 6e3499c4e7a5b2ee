"""What a run of the measurements is told."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from treadle.bench.colocation.workloads import GIB, Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a role may take, in seconds. What takes longer is a failed cell."""

    load: float = 120.0
    warm: float = 300.0
    steady: float = 60.0
    drain: float = 10.0
    """After the last arrival, for requests that are still waiting."""
    answer: float = 60.0
    """Beyond what an order itself takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run: which cells, how long, where to."""

    cells: str = "quick"
    seconds: float = 60.0
    """Longest slice of a cell in this run, rounded up to whole seconds."""
    training_seconds: float = 20.0
    """The same for cells in which nothing is requested; over all runs."""
    min_requests: int = 10_000
    """A cell that has so many, over all runs, is left alone."""
    out: Path = Path("colocation.jsonl")
    """Results are appended here, and read from here."""
    as_json: bool = False
    markdown: Path | None = None
    plot: Path | None = None
    limit_seconds: float | None = None
    """No cell is begun that would, by its estimate, end later than this after the start."""
    report_only: bool = False
    baselines: bool = True
    """Also measure what the chosen cells are compared with."""
    fresh: bool = False
    """Start new processes for every cell."""
    gate_library: Path | None = None
    device: str = "cuda"
    scale: Scale = Scale.FULL
    seed: int = 1
    memory_bytes: int = 110 * GIB
    """Device memory that warm processes may hold together."""
    timeouts: Timeouts = Timeouts()
    role_command: tuple[str, ...] = (sys.executable, "-m", "treadle.bench.colocation.roles")
    """Starts a role, once its kind, name, device and scale are appended."""
