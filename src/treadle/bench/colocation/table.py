"""The report as a table: for a terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.bench.colocation.report import Report, Row, Summary
from treadle.bench.colocation.statistics import Estimate

_MISSING = "–"
_WIDTH = 240
"""Columns where no terminal says how many it has."""

CELL_HEADINGS = (
    "cell",
    "requests",
    "P50 ×",
    "P99 ×",
    "P99 ms",
    "steps/s",
    "of alone",
    "of left",
    "note",
)
SUMMARY_HEADINGS = (
    "mode",
    "pairs",
    "P99 × geo. mean",
    "worst",
    "P50 × geo. mean",
    "of left, mean",
    "worst",
    "of alone, worst",
)


def cell_rows(report: Report) -> list[tuple[str, ...]]:
    """A line for each cell, under ``CELL_HEADINGS``."""
    return [_cell(row) for row in report.rows]


def summary_rows(report: Report) -> list[tuple[str, ...]]:
    """A line for each mode, under ``SUMMARY_HEADINGS``."""
    return [_summary(summary) for summary in report.summaries]


def as_markdown(report: Report) -> str:
    """Both tables, and what they mean."""
    parts = [
        f"Measured on {', '.join(report.devices) or 'nothing'}. "
        "× is over the server native and alone, in brackets the 95% interval; "
        "*of left* is training kept, as a share of what the critical load leaves.",
        _markdown(CELL_HEADINGS, cell_rows(report)),
        _markdown(SUMMARY_HEADINGS, summary_rows(report)),
    ]
    return "\n\n".join(parts) + "\n"


def print_tables(report: Report) -> None:
    """Print both tables to standard output; plainly where rich is missing."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(as_markdown(report))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for headings, lines in (
        (CELL_HEADINGS, cell_rows(report)),
        (SUMMARY_HEADINGS, summary_rows(report)),
    ):
        table = Table(box=None, pad_edge=False)
        for number, heading in enumerate(headings):
            table.add_column(
                heading,
                justify="left" if number == 0 or heading == "note" else "right",
                no_wrap=heading != "note",
            )
        for line in lines:
            table.add_row(*line)
        if lines:
            console.print(table)
            console.print()


def _cell(row: Row) -> tuple[str, ...]:
    return (
        row.cell,
        str(row.requests) if row.requests else _MISSING,
        _ratio(row.p50_over_native),
        _ratio(row.p99_over_native, at_least=row.unanswered > 0),
        _MISSING if row.p99 is None else f"{row.p99.value * 1e3:.3f}",
        _MISSING if row.steps_per_second is None else f"{row.steps_per_second:.2f}",
        _share(row.kept_of_alone),
        _share(row.kept_of_left),
        row.note,
    )


def _summary(summary: Summary) -> tuple[str, ...]:
    return (
        summary.mode,
        str(summary.pairs),
        _number(summary.p99_geometric_mean),
        _number(summary.p99_worst),
        _number(summary.p50_geometric_mean),
        _percent(summary.left_mean),
        _percent(summary.left_worst),
        _percent(summary.alone_worst),
    )


def _ratio(estimate: Estimate | None, *, at_least: bool = False) -> str:
    if estimate is None:
        return _MISSING
    sign = "≥ " if at_least else ""
    return f"{sign}{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _share(estimate: Estimate | None) -> str:
    if estimate is None:
        return _MISSING
    return f"{estimate.value:.1%} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _number(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.1%}"


def _markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in headings[1:])]
    rows = (f"| {' | '.join(cells).replace(chr(10), ' ')} |" for cells in (headings, rule, *lines))
    return "\n".join(rows)
