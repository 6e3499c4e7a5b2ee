"""A load test as a picture: latency against rate, or over time at a single rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle.bench.loadtest.results import LoadRun, LoadTest, Verdict
from treadle.bench.svg import drawing


def draw(result: LoadTest, file: Path) -> None:
    """Write an SVG.

    Raises:
        TreadleError: If matplotlib is missing, or the file cannot be written.
    """
    with drawing(file, 8, 4.5) as figure:
        axes = figure.add_subplot()
        if result.found is not None:
            _against_rate(axes, result)
        elif result.run is not None:
            _over_time(axes, result.run)
        for colour, load in _coloured(result):
            if load.p99_seconds is not None:
                axes.axhline(
                    load.p99_seconds * 1000,
                    color=colour,
                    linestyle=":",
                    label=f"{load.model}: objective",
                )
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
        axes.set_ylabel("latency, ms")
        axes.legend(fontsize="x-small", loc="upper left")


def _against_rate(axes: Any, result: LoadTest) -> None:
    """Every valid run of a search; those that missed are crosses."""
    assert result.found is not None
    every = [*result.found.trials, *([result.run] if result.run else [])]
    valid = [run for run in every if run.verdict is not Verdict.INVALID]
    runs = sorted(valid, key=lambda run: run.rate)
    for colour, load in _coloured(result):
        for percent, line, of in _PERCENTILES:
            known = [
                (run.rate, value * 1000, run.verdict is Verdict.HELD)
                for run in runs
                if (value := of(run.models[load.model])) is not None
            ]
            axes.plot(
                [rate for rate, _, _ in known],
                [value for _, value, _ in known],
                color=colour,
                linestyle=line,
                linewidth=0.8,
                label=f"{load.model}: {percent}",
            )
            for held, marker in ((True, "o"), (False, "x")):
                points = [(rate, value) for rate, value, ended in known if ended is held]
                axes.plot(
                    [rate for rate, _ in points],
                    [value for _, value in points],
                    color=colour,
                    linestyle="none",
                    marker=marker,
                    markersize=4,
                )
    if result.found.rate is not None:
        axes.axvline(
            result.found.rate,
            color="grey",
            linewidth=0.8,
            label=f"holds up to {result.found.rate:.4g}/s",
        )
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.set_xlabel("requests/s, all models together")


def _over_time(axes: Any, run: LoadRun) -> None:
    """Each second of a run, and how many requests were due in it."""
    rates = axes.twinx()
    for number, model in enumerate(run.models):
        seconds = [second for second in run.series if second.model == model]
        times = [second.second for second in seconds]
        for percent, line, of in _PERCENTILES:
            values = [of(second) for second in seconds]
            axes.plot(
                times,
                [float("nan") if value is None else value * 1000 for value in values],
                color=f"C{number}",
                linestyle=line,
                label=f"{model}: {percent}",
            )
        offered = [second.offered for second in seconds]
        rates.step(times, offered, where="post", color=f"C{number}", alpha=0.3)
    axes.axvspan(0, run.warm_up_seconds, color="grey", alpha=0.15, label="warm-up")
    axes.set_xlabel("seconds")
    rates.set_ylim(bottom=0)
    rates.set_ylabel("requests/s (pale)")


def _plain_numbers(axis: Any) -> None:
    """No powers of ten."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}")
    axis.set_tick_params(which="minor", labelsize="x-small")


def _coloured(result: LoadTest) -> list[tuple[str, Any]]:
    """The loads in the order of a run's models, each with its colour."""
    loads = sorted(result.loads, key=lambda load: load.model)
    return [(f"C{number}", load) for number, load in enumerate(loads)]


def _p50(figures: Any) -> float | None:
    value: float | None = figures.p50_seconds
    return value


def _p99(figures: Any) -> float | None:
    value: float | None = figures.p99_seconds
    return value


_PERCENTILES: tuple[tuple[str, str, Callable[[Any], float | None]], ...] = (
    ("P50", "--", _p50),
    ("P99", "-", _p99),
)
