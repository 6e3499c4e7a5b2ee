"""The results: a table for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.servers import wrk
from bench.servers.contenders import Contender
from bench.servers.environments import Environment
from bench.servers.measure import Row, Timing
from rich.console import Console
from rich.table import Table

SUBJECT = "treadle"
"""The server that the ratios are about."""
NOISY_FRACTION = 0.2
"""A spread above this says that something else was using the machine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Treadle over another server, at the same workload and number of connections."""

    requests_per_second: float
    """Above 1 where treadle answers more."""
    p50: float
    """Below 1 where treadle answers sooner."""
    p99: float


def ratio(row: Row, rows: Sequence[Row]) -> Ratio | None:
    """Treadle over ``row``; None where treadle was not measured, or is the row itself."""
    for other in rows:
        same = (other.workload, other.connections) == (row.workload, row.connections)
        if same and other.contender == SUBJECT != row.contender:
            return Ratio(
                requests_per_second=other.requests_per_second / row.requests_per_second,
                p50=other.p50_seconds / row.p50_seconds,
                p99=other.p99_seconds / row.p99_seconds,
            )
    return None


def surroundings() -> dict[str, Any]:
    """The machine, the software and the command that the numbers belong to."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average_1min": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "wrk": wrk.version(),
    }


def _cpu_model() -> str | None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((s.split(":", 1)[1].strip() for s in lines if s.startswith("model name")), None)


def write_json(
    path: Path,
    rows: Sequence[Row],
    contenders: Sequence[Contender],
    environments: Mapping[str | None, Environment],
    timing: Timing,
    about: Mapping[str, Any],
) -> None:
    """Write everything that was measured, and what it was measured on."""
    document = {
        "format": 1,
        **about,
        "timing": dataclasses.asdict(timing),
        "contenders": {
            c.name: {"setup": c.setup, "packages": environments[c.environment].versions()}
            for c in contenders
        },
        "rows": [_row_as_dict(row, rows) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def _row_as_dict(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    against = ratio(row, rows)
    return {
        "workload": row.workload,
        "contender": row.contender,
        "connections": row.connections,
        "requests_per_second": row.requests_per_second,
        "spread_fraction": row.spread_fraction,
        "p50_seconds": row.p50_seconds,
        "p99_seconds": row.p99_seconds,
        "errors": row.errors,
        "treadle_ratio": dataclasses.asdict(against) if against else None,
        "rounds": [dataclasses.asdict(sample) for sample in row.samples],
    }


def print_table(
    console: Console,
    rows: Sequence[Row],
    contenders: Sequence[Contender],
    timing: Timing,
    about: Mapping[str, Any],
) -> None:
    """Print medians over the rounds, and treadle over each other server."""
    table = Table(
        title=f"medians of {timing.rounds} rounds of {timing.seconds} s",
        caption="treadle over the row's server: more requests/s is better above 1, P50 below 1",
    )
    table.add_column("workload", no_wrap=True)
    table.add_column("conns", justify="right")
    table.add_column("server", no_wrap=True)
    for heading in ("requests/s", "spread", "P50 ms", "P99 ms", "errors", "x req/s", "x P50"):
        table.add_column(heading, justify="right")
    for index, row in enumerate(rows):
        against = ratio(row, rows)
        last = index + 1 == len(rows)
        table.add_row(
            row.workload,
            str(row.connections),
            row.contender,
            f"{row.requests_per_second:,.0f}",
            f"{row.spread_fraction:.0%}",
            f"{row.p50_seconds * 1e3:.2f}",
            f"{row.p99_seconds * 1e3:.2f}",
            str(row.errors),
            f"{against.requests_per_second:.2f}" if against else "",
            f"{against.p50:.2f}" if against else "",
            end_section=not last and rows[index + 1].connections != row.connections,
        )
    console.print(table)
    noisy = sum(row.spread_fraction > NOISY_FRACTION for row in rows)
    if noisy:
        console.print(
            f"[bold]{noisy} of {len(rows)} rows spread by more than {NOISY_FRACTION:.0%}: the "
            "machine was busy with something else; do not rely on these ratios.[/bold]",
            highlight=False,
        )
    for contender in contenders:
        console.print(f"{contender.name}: {contender.setup}", highlight=False)
    console.print(
        f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, {about['wrk']}, "
        f"load before {about['load_average_1min']:.2f}, {about['date']}",
        highlight=False,
    )
    console.print(about["command"], highlight=False)
