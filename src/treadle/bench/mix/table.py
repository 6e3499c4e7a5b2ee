"""Runs for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from treadle.bench.mix.outcome import Run, ServiceFigures


def services_table(runs: Sequence[Run]) -> Table:
    """How the services' objectives were kept."""
    shown = _table("SCENARIO", "MODE", "SERVICE")
    for title in ("REQ/S", "REQUESTS", "P50 MS", "P99 MS", "GOAL MS", "LATE ‰"):
        shown.add_column(title, justify="right")
    shown.add_column("MET")
    shown.add_column("SETTLED S", justify="right")
    shown.add_column("BAD UNTIL S", justify="right")
    for run in runs:
        if run.failed:
            first = run.failed.splitlines()[0]
            shown.add_row(run.scenario, run.mode, Text(f"failed: {first}"))
        for one in run.services:
            shown.add_row(
                *(
                    run.scenario,
                    run.mode,
                    one.name,
                    " ".join([f"{one.rate:.0f}", *one.bursts]),
                    f"{one.offered}",
                ),
                *(_milliseconds(one.p50_seconds), _milliseconds(one.p99_seconds)),
                f"{one.p99_objective_seconds * 1e3:g}",
                f"{one.late / one.offered * 1e3:.1f}" if one.offered else "-",
                "yes" if one.met else "NO",
                "-" if run.settled_seconds is None else f"{run.settled_seconds:.0f}",
                _bad_until(one),
            )
    return shown


def trainers_table(runs: Sequence[Run]) -> Table:
    """What the trainers got done, and what it took."""
    shown = _table("SCENARIO", "MODE", "TRAINER")
    for title in ("SAMPLES/S", "OF ALONE", "LONGEST PAUSE S", "KJ"):
        shown.add_column(title, justify="right")
    alone = {
        (*_same(run), one.name): one.samples_per_second
        for run in runs
        if not run.services
        for one in run.trainers
    }
    for run in runs:
        joules = "-" if run.energy_joules is None else f"{run.energy_joules / 1e3:.1f}"
        for one in run.trainers:
            before = alone.get((*_same(run), one.name))
            shown.add_row(
                *(run.scenario, run.mode, one.name, f"{one.samples_per_second:.1f}"),
                f"{one.samples_per_second / before:.1%}" if before else "-",
                "-" if one.longest_pause_seconds is None else f"{one.longest_pause_seconds:.2f}",
                joules,
            )
        if not run.trainers and not run.failed:
            shown.add_row(run.scenario, run.mode, "none", "-", "-", "-", joules)
    return shown


def _same(run: Run) -> tuple[object, ...]:
    """What trainers have in common that can be compared."""
    return run.scale, run.device, tuple(sorted(one.name for one in run.trainers))


def _bad_until(one: ServiceFigures) -> str:
    return "-" if one.last_bad_second is None else f"{one.last_bad_second + 1}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _table(*titles: str) -> Table:
    return Table(*titles, box=None, pad_edge=False, header_style="bold")
