"""What a simulation comes to: one row for each situation and mode, over all seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

import msgspec
from rich.table import Table

from treadle.bench.control.load import SITUATIONS
from treadle.bench.control.run import Result

FORMAT = 1
_HEADINGS = (
    "SITUATION",
    "MODE",
    "P50 ms",
    "P99 ms",
    "LATE ‰",
    "LATER ‰",
    "SETTLED s",
    "RECOVERED s",
    "KEPT",
    "LEVEL",
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The document. Everything but ``date`` and ``versions`` follows from the rest."""

    format: int = FORMAT
    date: str
    command: str
    versions: dict[str, str]
    simulated: bool = True
    situations: dict[str, str]
    results: tuple[Result, ...]


def table(results: Iterable[Result]) -> Table:
    """Medians over the seeds, and in brackets the range of what is late."""
    shown = Table(*_HEADINGS, box=None, pad_edge=False, header_style="bold")
    for row in rows(results):
        shown.add_row(*row)
    return shown


def markdown(results: Iterable[Result]) -> str:
    """The same for a page."""
    lines = [
        "| situation | mode | P50 ms | P99 ms | late ‰ | later ‰ | settled s | recovered s | kept"
        " | level |",
        "| --- | --- |" + " ---: |" * 8,
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows(results)]
    return "\n".join(lines) + "\n"


def rows(results: Iterable[Result]) -> list[tuple[str, ...]]:
    """The cells, in the order that things were simulated."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.situation, result.mode), []).append(result)
    return [_row(situation, mode, group) for (situation, mode), group in groups.items()]


def _row(situation: str, mode: str, group: Sequence[Result]) -> tuple[str, ...]:
    late = [one.late_per_thousand for one in group]
    burst = situation in SITUATIONS and SITUATIONS[situation].burst is not None
    return (
        situation,
        mode,
        _middle([one.p50_seconds for one in group], 1e3, 2),
        _middle([one.p99_seconds for one in group], 1e3, 2),
        f"{fmean(late):.1f} ({min(late):.1f} to {max(late):.1f})",
        _middle([one.late_after_settling_per_thousand for one in group], 1, 1),
        "–" if burst else _middle([one.settled_seconds for one in group], 1, 0),
        _middle([one.recovered_seconds for one in group], 1, 0),
        "–" if mode == "alone" else f"{fmean(one.kept_fraction for one in group):.1%}",
        _middle([one.level for one in group], 1, 2),
    )


def _middle(values: Sequence[float | None], scale: float, digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known) * scale:.{digits}f}" if len(known) * 2 > len(values) else "–"
