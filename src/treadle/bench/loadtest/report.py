"""A load test as tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table

from treadle.bench.loadtest.results import FoundRate, LimitedBy, LoadFigures, LoadRun, LoadTest
from treadle.bench.report import UNKNOWN, in_ms, machine_line, plain_table, short

_WHY = {
    LimitedBy.OBJECTIVE: "an objective is missed",
    LimitedBy.GENERATOR: "the generator is late, so the server may be able to do more",
}


def print_report(console: Console, result: LoadTest) -> None:
    """Print what was found, each run of a search, and the run that counts."""
    for part in _parts(result):
        console.print(part, highlight=False, markup=False)


def _parts(result: LoadTest) -> Iterator[RenderableType]:
    if result.found is not None:
        yield trials_table(result.found)
        yield ""
        yield found_line(result.found)
        yield ""
    if (run := result.run) is not None:
        yield run_table(run)
        yield from reason_lines(run)
        yield verdict_line(run)
        for warning in run.warnings:
            yield f"warning: {warning}"
    yield ""
    yield f"to {result.server} at {result.target}, {result.arrivals.pattern} arrivals"
    yield machine_line(result.machine, result)


def trials_table(found: FoundRate) -> Table:
    """A row for each run of a search, in order."""
    table = plain_table("OFFER/s", ["P50 ms", "P99 ms", "WITHIN", "REFUSED", "FAILED", "VERDICT"])
    for run in found.trials:
        total, verdict = run.total, "-" if run.verdict is None else str(run.verdict)
        if run.stopped_after_seconds is not None:
            verdict += f" after {run.stopped_after_seconds:.1f} s"
        table.add_row(
            short(run.rate),
            in_ms(total.p50_seconds),
            in_ms(total.p99_seconds),
            _percent(min(_within(run), default=None)),
            str(sum(total.refused.values())),
            str(sum(total.failed.values())),
            verdict,
        )
    return table


def found_line(found: FoundRate) -> str:
    """The rate up to which the objectives hold."""
    if found.rate is None:
        return "no rate was found at which every objective holds"
    text = f"holds up to {short(found.rate)} requests/s"
    if len(found.rates) > 1:
        text += " (" + ", ".join(f"{m} {short(rate)}" for m, rate in found.rates.items()) + ")"
    if found.fails_at is None:
        return f"{text}, the highest that was to be tried (--max-rate)"
    return f"{text}; at {short(found.fails_at)} {_WHY[found.limited_by]}"


def run_table(run: LoadRun) -> Table:
    """A row for each model and, if there are several, one for all."""
    headings = ["OFFER/s", "GOOD/s", "P50 ms", "P90 ms", "P99 ms", "P99.9 ms", "MAX ms", "GOAL"]
    table = plain_table("MODEL", [*headings, "WITHIN", "REFUSED", "FAILED"])
    for name, figures in run.models.items():
        table.add_row(name, *_cells(figures))
    if len(run.models) > 1:
        table.add_section()
        table.add_row("total", *_cells(run.total))
    return table


def reason_lines(run: LoadRun) -> Iterator[str]:
    """Why requests were refused or failed."""
    for name, figures in run.models.items():
        for kind, reasons in (("refused", figures.refused), ("failed", figures.failed)):
            for reason, count in reasons.items():
                yield f"{name}: {count} {kind}: {reason}"


def verdict_line(run: LoadRun) -> str:
    """How it ended, and whether the generator kept up."""
    parts = [
        f"{run.total.offered} requests in {run.seconds:g} s after {run.warm_up_seconds:g} s of "
        f"warm-up, {run.total.answered} answered"
    ]
    if run.verdict is not None:
        parts.append(f"objective {run.verdict}" if run.valid else str(run.verdict).upper())
    if (lag := run.send_lag) is not None:
        parts.append(
            f"generator late by {in_ms(lag.p99_seconds)} ms at P99, {in_ms(lag.max_seconds)} at "
            "most"
        )
    if (cpu := run.cpu) is not None:
        parts.append(
            f"cores used: node {cpu.node_cores:.2f}, generator {cpu.generator_cores:.2f}, "
            f"others {cpu.other_cores:.2f}"
        )
    return "; ".join(parts)


def _cells(figures: LoadFigures) -> list[str]:
    objective = figures.p99_objective_seconds
    return [
        short(figures.offered_per_second),
        short(figures.goodput_per_second),
        in_ms(figures.p50_seconds),
        in_ms(figures.p90_seconds),
        in_ms(figures.p99_seconds) + _interval(figures),
        in_ms(figures.p999_seconds),
        in_ms(figures.max_seconds),
        UNKNOWN if objective is None else f"{objective * 1000:g}",
        _percent(figures.within_fraction),
        str(sum(figures.refused.values())),
        str(sum(figures.failed.values())),
    ]


def _interval(figures: LoadFigures) -> str:
    low, high = figures.p99_low_seconds, figures.p99_high_seconds
    return "" if low is None or high is None else f" [{in_ms(low)}, {in_ms(high)}]"


def _within(run: LoadRun) -> list[float]:
    """Of the models with an objective."""
    return [
        figures.within_fraction
        for figures in run.models.values()
        if figures.p99_objective_seconds is not None and figures.within_fraction is not None
    ]


def _percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{fraction:.2%}"
