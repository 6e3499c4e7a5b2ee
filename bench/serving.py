"""Measures models served under objectives: batches sized by what is promised, and otherwise.

``python bench/serving.py --device cuda --play one --play two`` starts a node for each mode, looks
for the highest rate at which every objective holds (or puts on a fixed load), and prints what came
of it side by side. Results are added to the file, so that a measurement may be made in parts. Needs
PyTorch. The plays:

one, one-language   ResNet-50, or an encoder of BERT-base's size, alone; 50 ms at P99
two                 both, eight images for a text
two-objectives      the same with 20 ms for images and 200 ms for texts
two-bursts          three times the mean for one second in ten
target              ResNet-50 at a fixed rate, P99 steered to 120 ms
ranker              a recommender, 200 ms at P99, CRITICAL, beside a heavy BACKGROUND model
classes             CRITICAL images beside BACKGROUND texts, in one worker on a GPU
overhead            an image of 602 kB in, one number out: all but the model

The first three and two-bursts are also played by other servers with the same PyTorch modules, in
the same precision (modes litserve and mlserver), each with the settings that a short sweep finds
best; the sweep is kept in the file. LitServe's application speaks the protocol with binary tensors,
as treadle does; MLServer's HTTP takes none, so that it gets JSON. Both run eager, as they do by
themselves. Their packages come from ``--rivals FOLDER``: FOLDER/litserve and FOLDER/mlserver, made
by ``python -m bench.servers.environments``, or, where there is no network, each from wheels by
``pip install --no-index --find-links WHEELS --no-deps --target``. A server without is left out.

``--tiny --device cpu`` goes the same way without a GPU; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from treadle.bench.results import save
from treadle.bench.serving.plays import MODES, PLAYS, RIVAL_MODES
from treadle.bench.serving.rivals.play import play_rival
from treadle.bench.serving.rivals.sweep import Grid
from treadle.bench.serving.run import Played, Settings, play_once
from treadle.errors import TreadleError

_RESULTS = Path(__file__).resolve().parent / "results" / "serving.json"
_RIVALS = Path(__file__).resolve().parents[1] / ".bench"
_WIDTH = 160


class Document(Struct, kw_only=True):
    """All that was played."""

    format: int = 1
    played: list[Played] = []


def read(path: Path) -> Document:
    """What the file holds; nothing where there is none.

    Raises:
        TreadleError: If it holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except FileNotFoundError:
        return Document()
    except (OSError, msgspec.DecodeError) as error:
        raise TreadleError(f"{path} cannot be read: {error}") from None


def table(document: Document) -> Table:
    """Side by side: each mode beside the first of its play."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    titles = (
        "PLAY",
        "MODE",
        "MODEL",
        "RATE/s",
        "OF FIRST",
        "P50 ms",
        "P99 ms",
        "GOAL ms",
        "WITHIN",
        "ROWS",
        "SMS",
        "SETUP",
    )
    for title in titles:
        left = title in ("PLAY", "MODE", "MODEL", "SETUP")
        shown.add_column(title, justify="left" if left else "right")
    first: dict[tuple[str, str], float] = {}
    for one in document.played:
        run = one.test.run if one.test is not None else None
        if run is None:
            why = f"left out: {one.left_out}" if one.left_out else one.setup
            shown.add_row(one.play, one.mode, *["-"] * 9, why)
            continue
        for model, found in run.models.items():
            rate = found.goodput_per_second
            base = first.setdefault((one.play, model), rate)
            rows = one.standings.get(model, {}).get("batch_rows")
            shown.add_row(
                one.play,
                one.mode,
                model,
                f"{rate:.4g}",
                f"{rate / base:.2f}" if base else "-",
                _milliseconds(found.p50_seconds),
                _milliseconds(found.p99_seconds),
                _milliseconds(found.p99_objective_seconds),
                "-" if found.within_fraction is None else f"{found.within_fraction:.2%}",
                "-" if rows is None else f"{rows:.3g}",
                "-" if one.sm_active is None else f"{one.sm_active:.0%}",
                one.setup,
            )
    return shown


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g}"


def play_all(arguments: argparse.Namespace, console: Console) -> Document:
    """Play what was asked for, as long as there is time."""
    settings = Settings(
        device=arguments.device,
        tiny=arguments.tiny,
        seconds=arguments.seconds,
        precision=arguments.precision,
        processes=arguments.processes,
        seed=arguments.seed,
    )
    deadline = time.monotonic() + arguments.limit_seconds
    document = read(arguments.output)
    for name in arguments.play or PLAYS:
        for mode in PLAYS[name].all_modes:
            if arguments.mode and mode not in arguments.mode:
                continue
            if time.monotonic() > deadline:
                console.print(f"{name} {mode}: left out, the time is up")
                continue
            began = time.monotonic()
            try:
                one = asyncio.run(_play(name, mode, settings, arguments))
            except (TreadleError, OSError) as error:
                one = Played(play=name, mode=mode, test=None, failed=str(error))
            document.played.append(one)
            save(document, arguments.output)
            said = f"left out: {one.left_out}" if one.left_out else one.failed
            console.print(f"{name} {mode}: {time.monotonic() - began:.0f} s {said}")
    return document


async def _play(name: str, mode: str, settings: Settings, arguments: argparse.Namespace) -> Played:
    play, factor = PLAYS[name], arguments.rate_factor
    if mode not in RIVAL_MODES:
        return await play_once(play, mode, settings, factor)
    return await play_rival(play, mode, settings, factor, arguments.rivals, arguments.grid)


def _grid(text: str) -> Grid:
    try:
        batches, delays, processes = (part.split(",") for part in text.split(":"))
        return Grid(
            batches=tuple(map(int, batches)),
            delays_seconds=tuple(float(delay) / 1e3 for delay in delays),
            processes=tuple(map(int, processes)),
        )
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: as 8,32:0,5:1") from None


def main() -> int:
    """Measure, print and save; the exit status is 1 if something failed."""
    parser = argparse.ArgumentParser(description="Measure models served under objectives.")
    parser.add_argument("--play", action="append", choices=PLAYS, help="default: all")
    parser.add_argument(
        "--mode", action="append", choices=(*MODES, *RIVAL_MODES), help="default: all"
    )
    parser.add_argument("--rivals", type=Path, default=_RIVALS, metavar="FOLDER")
    parser.add_argument(
        "--grid", type=_grid, metavar="ROWS:MILLISECONDS:PROCESSES", help="of the other servers"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="models of no use, to try the way")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each trial or load")
    parser.add_argument("--precision", type=float, default=0.08, help="of a rate that is found")
    parser.add_argument("--processes", type=int, default=1, help="of the load generator")
    parser.add_argument("--rate-factor", type=float, default=1.0, help="of all rates given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-seconds", type=float, default=1e6, help="nothing begins later")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    parser.add_argument("--report-only", action="store_true", help="print what the file holds")
    arguments = parser.parse_args()
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        document = read(arguments.output) if arguments.report_only else play_all(arguments, console)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    console.print(table(document))
    console.print(f"saved: {arguments.output}", soft_wrap=True)
    return 1 if any(one.failed for one in document.played) else 0


if __name__ == "__main__":
    sys.exit(main())
