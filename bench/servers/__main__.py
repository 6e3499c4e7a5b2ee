"""Command line: ``python -m bench.servers``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from bench.servers import environments, report, workloads, wrk
from bench.servers.contenders import CONTENDERS, Contender
from bench.servers.environments import Environment
from bench.servers.errors import BenchError
from bench.servers.measure import Row, Timing, measure
from bench.servers.workloads import Workload
from rich.console import Console

_RESULTS = environments.ROOT / "bench" / "results" / "servers.json"
_MAX_BATCH = 32
_WORKLOADS: dict[str, Callable[[Path], Workload]] = {
    "identity": lambda _: workloads.identity(),
    "identity-batched": lambda _: workloads.identity(max_batch=_MAX_BATCH),
    "file-type": workloads.file_type,
    "file-type-batched": lambda path: workloads.file_type(path, max_batch=_MAX_BATCH),
    "binary-600k": lambda _: workloads.binary_tensor(),
}
_DEFAULT_WORKLOADS = ["identity", "identity-batched", "file-type", "binary-600k"]


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = sorted(set(names) - set(allowed))
        if unknown:
            wrong, right = ", ".join(unknown), ", ".join(allowed)
            raise argparse.ArgumentTypeError(f"unknown: {wrong}; allowed: {right}")
        return names

    return parse


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _arguments() -> argparse.Namespace:
    names = [c.name for c in CONTENDERS]
    parser = argparse.ArgumentParser(
        prog="python -m bench.servers",
        description="Compare treadle with other servers, in one run and with one client.",
    )
    parser.add_argument(
        "--only",
        type=_names(names),
        default=names,
        metavar="SERVERS",
        help=f"servers to measure, separated by commas (default: {','.join(names)})",
    )
    parser.add_argument(
        "--workloads",
        type=_names(list(_WORKLOADS)),
        default=_DEFAULT_WORKLOADS,
        metavar="WORKLOADS",
        help=f"any of {','.join(_WORKLOADS)} (default: {','.join(_DEFAULT_WORKLOADS)})",
    )
    parser.add_argument("--rounds", type=_positive, default=3, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=_positive, default=8, help="of each round (default: %(default)s)"
    )
    parser.add_argument(
        "--warmup", type=int, default=1, help="seconds before each round (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=_RESULTS, metavar="FILE")
    return parser.parse_args()


def _prepare(contenders: Sequence[Contender]) -> dict[str | None, Environment]:
    prepared: dict[str | None, Environment] = {None: environments.own_environment()}
    for contender in contenders:
        name = contender.environment
        if name is not None and name not in prepared:
            prepared[name] = environments.prepare(name)
        missing = contender.missing(prepared[name])
        if missing is not None:
            raise BenchError(f"{contender.name}: {missing}")
    return prepared


def _model_file(prepared: Mapping[str | None, Environment]) -> Path:
    files = [environment.model_file for environment in prepared.values()]
    return next(path for path in files if path.exists())


def _end(number: int, frame: FrameType | None) -> None:
    # As an exception, so that every server is stopped on the way out.
    raise SystemExit(128 + number)


def _run(arguments: argparse.Namespace) -> None:
    wrk.find()
    contenders = [c for c in CONTENDERS if c.name in arguments.only]
    prepared = _prepare(contenders)
    timing = Timing(
        rounds=arguments.rounds, seconds=arguments.seconds, warmup_seconds=arguments.warmup
    )
    about = report.surroundings()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        for name in arguments.workloads:
            workload = _WORKLOADS[name](_model_file(prepared))
            rows += measure(workload, contenders, prepared, timing, Path(folder))
    report.write_json(arguments.json, rows, contenders, prepared, timing, about)
    # Wide enough for the table also where the output is no terminal.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    report.print_table(console, rows, contenders, timing, about)
    console.print(f"all samples: {arguments.json}", highlight=False)


def main() -> int:
    """Run the comparison; give the exit status."""
    signal.signal(signal.SIGTERM, _end)
    try:
        _run(_arguments())
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
