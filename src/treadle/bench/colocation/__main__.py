"""``python -m treadle.bench.colocation``: the command where treadle is not installed."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from treadle.bench.colocation.cells import SETS, known_cells
from treadle.bench.colocation.command import run
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.workloads import Scale
from treadle.errors import TreadleError


def parse(arguments: Sequence[str]) -> Settings:
    """Read the command line."""
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="treadle bench colocation",
        description="Measure how well one GPU is shared. Results are appended; run it again to "
        "add requests to the cells that lack them.",
        epilog=f"sets of cells: {', '.join(SETS)}; patterns such as resnet20/*/gate fit, too",
    )
    add = parser.add_argument
    add("--cells", default=usual.cells, help="cells, patterns and sets, separated by commas")
    add("--list", action="store_true", help="list the cells in the order of importance, and end")
    add("--seconds", type=float, default=usual.seconds, help="longest slice of a cell in this run")
    add("--training-seconds", type=float, default=usual.training_seconds, help="without requests")
    add("--min-requests", type=int, default=usual.min_requests, help="enough, over all runs")
    add("--out", type=Path, default=usual.out, help="results file, JSON lines")
    add("--json", action="store_true", dest="as_json", help="print JSON, not a table")
    add("--markdown", type=Path, help="also write the tables there")
    add("--plot", type=Path, help="also draw the trade-off there, as SVG (needs matplotlib)")
    add("--limit-seconds", type=float, help="begin no cell that would end later than this")
    add("--report-only", action="store_true", help="measure nothing")
    add("--no-baselines", action="store_false", dest="baselines", help="only the named cells")
    add("--fresh", action="store_true", help="start new processes for every cell")
    add("--gate-library", type=Path, help="the launch gate's library")
    add("--device", choices=("cuda", "cpu"), default=usual.device)
    add("--scale", type=Scale, choices=tuple(Scale), default=usual.scale)
    add("--seed", type=int, default=usual.seed, help="of the arrivals")
    found = vars(parser.parse_args(arguments))
    if found.pop("list"):
        print("\n".join(map(str, known_cells())))
        parser.exit()
    return Settings(**found)


def main() -> int:
    """Run it; what goes wrong in an expected way is one line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is taken down
    try:
        return run(parse(sys.argv[1:]))
    except TreadleError as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
