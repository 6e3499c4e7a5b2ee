"""Measures a whole node on one GPU: services with objectives beside trainers, started by it.

``python bench/node_gpu.py --scenario control --mode controller --output results/node_gpu.json``
starts a node of its own for each mode, has it run the services and the trainers, and reports what
came of the objectives and of the training. Results are added to the file, so that a measurement may
be made in parts. The scenarios:

control  one service with an objective of 10 ms beside one trainer: with the controller, and with
         knobs that nobody turns; and each alone
burst    the same with five times the load for a sixth of the time, from the middle on
mix      five services that take 60% of an H200 together, and two trainers: in turns, and in
         parallel (MPS); and the services, and the trainers, alone

``--scale tiny --device cpu`` goes the same way without a GPU; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from treadle.bench.colocation.workloads import Scale
from treadle.bench.mix.outcome import Document, add_run, read_document
from treadle.bench.mix.player import Settings, perform, play_seconds
from treadle.bench.mix.plays import MODES, Play, make_play
from treadle.bench.mix.table import services_table, trainers_table
from treadle.errors import ConfigError, TreadleError

_RESULTS = Path(__file__).resolve().parent / "results" / "node_gpu.json"
_WIDTH = 140


def measure(arguments: argparse.Namespace, plays: list[Play], console: Console) -> Document:
    """Play one after the other, as long as there is time."""
    settings = Settings(
        device=arguments.device,
        scale=Scale(arguments.scale),
        seed=arguments.seed,
        cooperative=arguments.cooperative,
    )
    deadline = time.monotonic() + arguments.limit_seconds
    document = read_document(arguments.output)
    for play in plays:
        name, takes = f"{play.scenario} {play.mode}", play_seconds(play, settings.scale)
        left = deadline - time.monotonic()
        if takes > left:
            console.print(f"{name}: left out, about {takes:.0f} s and {left:.0f} s are left")
            continue
        console.print(f"{name}: about {takes:.0f} s")
        began = time.monotonic()
        run = perform(play, settings, deadline, console.print)
        document = add_run(arguments.output, run)
        console.print(
            f"{name}: took {time.monotonic() - began:.0f} s" + (run.failed and f": {run.failed}"),
            markup=False,
        )
    return document


def chosen(arguments: argparse.Namespace) -> list[Play]:
    """What is to be played.

    Raises:
        ConfigError: If a mode belongs to none of the scenarios.
    """
    scenarios = arguments.scenario or [*MODES]
    known = {mode for scenario in scenarios for mode in MODES[scenario]}
    if unknown := [mode for mode in arguments.mode or () if mode not in known]:
        raise ConfigError(f"no mode {unknown[0]!r} there; allowed: {', '.join(sorted(known))}")
    return [
        make_play(scenario, mode, arguments.seconds, Scale(arguments.scale))
        for scenario in scenarios
        for mode in MODES[scenario]
        if not arguments.mode or mode in arguments.mode
    ]


def main() -> int:
    """Measure, print and save; give the exit status."""
    parser = argparse.ArgumentParser(description="Measure a whole node on one GPU.")
    parser.add_argument("--scenario", action="append", choices=MODES, help="default: all")
    parser.add_argument(
        "--mode",
        action="append",
        help="default: all; " + "; ".join(f"{k}: {', '.join(v)}" for k, v in MODES.items()),
    )
    parser.add_argument(
        "--seconds", type=int, help="of load in each; default: 60, of burst and mix 120"
    )
    parser.add_argument(
        "--limit-seconds",
        type=float,
        default=580.0,
        help="nothing is begun that would end later than this; default: %(default)s",
    )
    parser.add_argument("--cooperative", action="store_true", help="services mark their work")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--scale", choices=[str(scale) for scale in Scale], default="full")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    parser.add_argument("--report-only", action="store_true", help="print what the file holds")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as Ctrl-C does
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        plays = [] if arguments.report_only else chosen(arguments)
        document = measure(arguments, plays, console)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    console.print(services_table(document.runs), trainers_table(document.runs), sep="\n\n")
    console.print(f"saved: {arguments.output}", soft_wrap=True)
    new = document.runs[len(document.runs) - len(plays) :] if plays else []
    return 1 if any(run.failed for run in new) else 0


if __name__ == "__main__":
    sys.exit(main())
