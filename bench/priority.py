"""FIFO against PRIORITY: what urgent requests gain, and what it costs all together.

``python bench/priority.py`` drives the quickstart's models at 90% of their capacity, under one
policy after the other, with the same arrivals. It does what this does, and looks at the two
figures that matter::

    treadle bench serve examples/quickstart/treadle.toml --policy fifo --policy priority

The exit status is 1 if a goal is missed. The results' format is ``treadle.bench.results``'.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from rich.table import Table

from treadle.bench.measure import Plan, measure
from treadle.bench.report import print_report
from treadle.bench.results import Results, save
from treadle.cli.measuring import report_console, run_measurement
from treadle.errors import TreadleError
from treadle.types import Priority

_ROOT = Path(__file__).resolve().parent.parent
_QUICKSTART = _ROOT / "examples" / "quickstart" / "treadle.toml"
_RESULTS = _ROOT / "bench" / "results" / "priority.json"

P99_GOAL = 3.0
"""FIFO's P99 of CRITICAL models over PRIORITY's, at least."""
THROUGHPUT_GOAL = 0.95
"""PRIORITY's completed requests per second over FIFO's, at least."""


def critical_ratio(results: Results) -> float | None:
    """FIFO's P99 over PRIORITY's, of the CRITICAL model that gains least; None if unknown."""
    models = results.runs[0].models
    ratios = [
        results.comparisons[0].p99_ratio[name]
        for name, figures in models.items()
        if figures.priority == Priority.CRITICAL.label
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known) if known and len(known) == len(ratios) else None


def summary(results: Results) -> tuple[Table, bool]:
    """The two figures beside their goals, and whether both are met."""
    rows = [
        ("CRITICAL P99, fifo over priority", critical_ratio(results), P99_GOAL),
        (
            "throughput, priority over fifo",
            results.comparisons[0].throughput_ratio,
            THROUGHPUT_GOAL,
        ),
    ]
    table = Table("FIGURE", "RATIO", "GOAL", box=None, pad_edge=False, header_style="bold")
    for text, ratio, goal in rows:
        table.add_row(text, "-" if ratio is None else f"{ratio:.2f}", f"at least {goal:g}")
    return table, all(ratio is not None and ratio >= goal for _, ratio, goal in rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare FIFO with PRIORITY on the quickstart.")
    parser.add_argument("--load", type=float, default=0.9, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    """Run the comparison; give the exit status."""
    arguments = _arguments()
    plan = Plan(
        file=_QUICKSTART,
        policies=("fifo", "priority"),
        load=arguments.load,
        seconds=arguments.seconds,
        seed=arguments.seed,
    )
    try:
        results = run_measurement(partial(measure, plan))
        save(results, arguments.output)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    console = report_console()
    print_report(console, results)
    table, met = summary(results)
    console.print()
    console.print(table, highlight=False)
    console.print(f"saved: {arguments.output}", highlight=False, soft_wrap=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
