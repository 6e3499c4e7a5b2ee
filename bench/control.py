"""What the controller makes of a GPU that a critical server shares with a training: simulated.

``python bench/control.py`` runs in virtual time, with no GPU: the assumptions are in
``docs/measurements/control-simulated.md``. The same seeds give the same figures anywhere.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console

from treadle.bench.control.load import SITUATIONS
from treadle.bench.control.report import Report, markdown, table
from treadle.bench.control.run import MODES, Result, level_of, simulate
from treadle.bench.machine import command_line, versions
from treadle.bench.results import date_now, save, to_json
from treadle.errors import TreadleError

_RESULTS = Path(__file__).resolve().parent / "results" / "control.json"


def _run(job: tuple[str, str, int]) -> Result:
    name, mode, seed = job
    return simulate(name, SITUATIONS[name], mode, seed)


def main() -> int:
    """Simulate, print and save; give the exit status."""
    parser = argparse.ArgumentParser(description="Simulate the controller beside fixed knobs.")
    parser.add_argument("--situation", action="append", choices=SITUATIONS, help="default: all")
    parser.add_argument("--mode", action="append", help=f"{', '.join(MODES)}, or fixed: LEVEL")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print the document")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    arguments = parser.parse_args()
    situations, modes = arguments.situation or SITUATIONS, arguments.mode or MODES
    jobs = [(s, m, seed) for s in situations for m in modes for seed in range(arguments.seeds)]
    try:
        for mode in modes:
            level_of(mode)
        with ProcessPoolExecutor(arguments.processes) as pool:
            results = tuple(pool.map(_run, jobs))
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 2
    report = Report(
        date=date_now(),
        command=command_line(),
        versions=versions(),
        situations={name: SITUATIONS[name].help for name in situations},
        results=results,
    )
    try:
        save(report, arguments.output)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        sys.stdout.buffer.write(to_json(report))
    elif arguments.markdown:
        print(markdown(results), end="")
    else:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
        console.print(table(results))
        console.print(f"saved: {arguments.output}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
