"""The results as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rich.console import Console, RenderableType
from rich.table import Table

from treadle.bench.results import Calibration, Comparison, Figures, Machine, Results, Run

UNKNOWN = "-"


class Measured(Protocol):
    """What any document says of how it came about."""

    @property
    def versions(self) -> dict[str, str]: ...
    @property
    def seed(self) -> int: ...
    @property
    def seconds(self) -> float: ...


def print_report(console: Console, results: Results) -> None:
    """Print calibration, a table for each policy, and how they compare."""
    for part in _parts(results):
        console.print(part, highlight=False, markup=False)


def _parts(results: Results) -> Iterator[RenderableType]:
    yield calibration_table(results.calibration, results.rates)
    yield capacity_line(results)
    for warning in results.calibration.warnings:
        yield f"warning: {warning}"
    for run in results.runs:
        yield ""
        yield run_table(run)
        yield generator_line(run)
        for warning in run.warnings:
            yield f"warning: {warning}"
    for comparison in results.comparisons:
        yield ""
        yield comparison_table(comparison)
    yield ""
    yield machine_line(results.machine, results)


def calibration_table(calibration: Calibration, rates: dict[str, float]) -> Table:
    """What each model takes alone, and what it will be asked."""
    table = plain_table("MODEL", ["ALONE ms", "PART OF TIME", "OFFER/s"])
    parts = sum(calibration.parts.values())
    for name, seconds in calibration.service_seconds.items():
        part = calibration.parts[name] / parts
        table.add_row(name, in_ms(seconds), f"{part:.0%}", short(rates[name]))
    return table


def capacity_line(results: Results) -> str:
    """The load, and what it is a part of."""
    calibration, offered = results.calibration, sum(results.rates.values())
    capacity = calibration.capacity_requests_per_second
    if capacity is None:
        return f"offered: {offered:.1f} requests/s"
    return (
        f"capacity: {capacity:.1f} requests/s (closed loop, {calibration.clients} clients, "
        f"{calibration.policy}); offered: {results.load:.0%} of it, {offered:.1f} requests/s"
    )


def run_table(run: Run) -> Table:
    """One policy: a row for each model and one for all."""
    headings = ["OFFER/s", "DONE/s", "P50 ms", "P95 ms", "P99 ms", "GOAL", "MET"]
    table = plain_table(run.policy.upper(), [*headings, "REJECTED", "FAILED"])
    for name, figures in run.models.items():
        table.add_row(name, *_cells(figures))
    table.add_section()
    table.add_row("total", *_cells(run.total))
    return table


def generator_line(run: Run) -> str:
    """What the generator, and others, did to the figures."""
    cpu, text = run.cpu, ""
    if (lag := run.send_lag) is not None:
        text = (
            f"generator late by {in_ms(lag.p99_seconds)} ms at P99, {in_ms(lag.max_seconds)} at "
            "most; "
        )
    return (
        f"{text}cores used: node {cpu.node_cores:.2f}, generator {cpu.generator_cores:.2f}, "
        f"others {cpu.other_cores:.2f}"
    )


def comparison_table(comparison: Comparison) -> Table:
    """The second policy against the first."""
    first, second = comparison.first.upper(), comparison.second.upper()
    table = plain_table(f"{first} OVER {second}", ["P99"])
    for name, ratio in comparison.p99_ratio.items():
        table.add_row(name, _times(ratio))
    table.add_section()
    table.add_row(
        f"throughput, {comparison.second} over {comparison.first}",
        _times(comparison.throughput_ratio),
    )
    return table


def machine_line(machine: Machine, results: Measured) -> str:
    """What the figures belong to."""
    return (
        f"{machine.cpu or 'unknown CPU'}, {machine.cores} cores, load before "
        f"{machine.load_average:.2f}; treadle {results.versions['treadle']}, Python "
        f"{results.versions['python']}; seed {results.seed}, {results.seconds:g} s"
    )


def plain_table(first: str, others: list[str]) -> Table:
    """A table without lines; numbers are on the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _cells(figures: Figures) -> list[str]:
    met = figures.objective_met_fraction
    objective = figures.p99_objective_seconds
    return [
        short(figures.offered_per_second),
        short(figures.completed_per_second),
        in_ms(figures.p50_seconds),
        in_ms(figures.p95_seconds),
        in_ms(figures.p99_seconds),
        UNKNOWN if objective is None else f"{objective * 1000:g}",
        UNKNOWN if met is None else f"{met:.1%}",
        str(figures.rejected),
        str(figures.failed),
    ]


def in_ms(seconds: float | None) -> str:
    """Milliseconds for a table."""
    return UNKNOWN if seconds is None else short(seconds * 1000)


def short(number: float) -> str:
    """Three digits or more, so that a table fits a terminal."""
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f}"


def _times(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio:.2f}x"
