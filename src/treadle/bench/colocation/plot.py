"""The trade-off as a picture: what the server pays against what training keeps."""

from __future__ import annotations

from pathlib import Path

from treadle.bench.colocation.cells import parse_cell
from treadle.bench.colocation.report import Report, Row
from treadle.bench.svg import drawing

_MARKERS = "osD^v<>P*X"


def draw(report: Report, file: Path) -> None:
    """Write an SVG: a point for each pair and mode; the settings of a sweep are joined.

    Raises:
        TreadleError: If matplotlib is missing.
    """
    with drawing(file, 9, 5.5) as figure:
        axes = figure.add_subplot()
        colours: dict[str, str] = {}
        markers: dict[str, str] = {}
        for (pair, name), rows in _series(report).items():
            colour = colours.setdefault(pair, f"C{len(colours)}")
            marker = markers.setdefault(name, _MARKERS[len(markers) % len(_MARKERS)])
            points = [_point(row) for row in rows]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                linestyle="-" if len(points) > 1 else "none",
                linewidth=0.8,
                marker=marker,
                color=colour,
                label=f"{pair}, {name}",
            )
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("training kept, % of what the critical load leaves")
        axes.set_ylabel("P99 of the server, times native and alone")
        if colours:
            axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _series(report: Report) -> dict[tuple[str, str], list[Row]]:
    """Rows by pair and mode, the settings of a mode's knobs together and in order."""
    shown = [row for row in report.rows if row.p99_over_native and row.kept_of_left]
    series: dict[tuple[str, str], list[Row]] = {}
    for row in shown:
        cell = parse_cell(row.cell)
        series.setdefault((f"{cell.critical} + {cell.background}", cell.mode.name), []).append(row)
    for rows in series.values():
        rows.sort(key=_point)
    return series


def _point(row: Row) -> tuple[float, float]:
    assert row.p99_over_native is not None
    assert row.kept_of_left is not None
    return 100 * row.kept_of_left.value, row.p99_over_native.value
