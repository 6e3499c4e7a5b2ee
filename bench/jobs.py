"""How fast jobs are taken, started and finished, and how long it takes to list them.

``python bench/jobs.py`` starts a node of its own and lets it run trivial jobs (``true``), once as
one array, once submitted one by one over one connection; then it lists queued jobs. The node's own
CPU time is told apart from that of the supervisors and jobs, which is the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.results import Machine, date_now, save
from treadle.client.node import NodeClient
from treadle.errors import RequestError, TreadleError, UnavailableError

_RESULTS = Path(__file__).resolve().parent / "results" / "jobs.json"
_JOBS = "/treadle/v1/jobs"
_TICKS = os.sysconf("SC_CLK_TCK")
_LISTED = 1000
_LIST_GOAL_SECONDS = 0.1


class Run(Struct, frozen=True, kw_only=True):
    """Jobs submitted in one way."""

    name: str
    jobs: int
    submit_seconds: float
    """Until the last of them was accepted."""
    seconds: float
    """Until the last of them was over."""
    node_cpu_seconds: float
    jobs_cpu_seconds: float
    """Of supervisors and jobs."""
    database_bytes: int
    """Afterwards, with its log."""


class Results(Struct, frozen=True, kw_only=True):
    """The document."""

    format: int = 1
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    runs: list[Run]
    listed: int
    list_seconds: list[float]
    """Of each request that lists that many queued jobs, with all of them queued."""


class BenchNode:
    """A node with a queue and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.state, self.socket = folder / "state", folder / "run" / "node.sock"
        config = folder / "treadle.toml"
        config.write_text("[jobs]\nkeep = 100000\n")
        environment = {
            **os.environ,
            "TREADLE_STATE_DIR": str(self.state),
            "TREADLE_RUNTIME_DIR": str(folder / "run"),
            "TREADLE_DEVICES": "none",
        }
        command = [sys.executable, "-m", "treadle.cli.main", "up", str(config), "--port", "0"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of the node, and of its children with all that they have waited for."""
        own, waited_for = _cpu(self.process.pid)
        children = Path(f"/proc/{self.process.pid}/task")
        for thread in children.iterdir():
            for child in (thread / "children").read_text().split():
                waited_for += sum(_cpu(int(child)))
        return own, waited_for

    def database_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.state / "jobs").glob("jobs.db*"))


def _cpu(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS, sum(map(int, fields[13:15])) / _TICKS


@contextmanager
def own_node() -> Iterator[BenchNode]:
    """A fresh node that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        node = BenchNode(Path(folder))
        try:
            yield node
        finally:
            node.process.terminate()
            node.process.wait()


async def open_queue(client: NodeClient) -> None:
    """Wait until jobs are taken."""
    while True:
        try:
            await client.get(_JOBS)
        except (ConnectionError, UnavailableError, RequestError):
            await asyncio.sleep(0.05)
        else:
            return


async def until_all_are_over(client: NodeClient) -> None:
    """Wait until no job waits or runs."""
    while (await client.get(f"{_JOBS}?limit=1"))["counts"]:  # noqa: ASYNC110 - the node tells of one
        await asyncio.sleep(0.1)


def job(*command: str, **fields: Any) -> dict[str, Any]:
    """One that needs nothing."""
    return {"command": [*command], "env": {**os.environ}, "share": 0, **fields}


async def submit(client: NodeClient, count: int, *, array: bool) -> int:
    """Submit trivial jobs; returns the last number."""
    if array:
        body = {"job": job("true"), "array": [*range(count)]}
        return int((await client.post(_JOBS, body))["ids"][-1])
    number = 0
    for _ in range(count):
        (number,) = (await client.post(_JOBS, {"job": job("true"), "array": []}))["ids"]
    return number


async def measure_run(name: str, count: int, *, array: bool) -> Run:
    """Run so many jobs on a fresh node."""
    with own_node() as node:
        async with NodeClient(node.socket) as client:
            await open_queue(client)
            own, children = node.cpu()
            began = time.monotonic()
            await submit(client, count, array=array)
            submitted = time.monotonic() - began
            await until_all_are_over(client)
            seconds = time.monotonic() - began
            own_after, children_after = node.cpu()
            finished = await client.get(f"{_JOBS}?limit=10000&states=finished")
            if len(finished["jobs"]) != min(count, 10_000):
                raise TreadleError(f"{len(finished['jobs'])} of {count} jobs are finished")
        return Run(
            name=name,
            jobs=count,
            submit_seconds=submitted,
            seconds=seconds,
            node_cpu_seconds=own_after - own,
            jobs_cpu_seconds=children_after - children,
            database_bytes=node.database_bytes(),
        )


async def measure_list(times: int) -> list[float]:
    """List queued jobs that wait for one that does not end."""
    found = []
    with own_node() as node:
        async with NodeClient(node.socket) as client:
            await open_queue(client)
            first = (await client.post(_JOBS, {"job": job("sleep", "1000")}))["ids"]
            body = {"job": job("true", after=first), "array": [*range(_LISTED)]}
            await client.post(_JOBS, body)
            for _ in range(times):
                began = time.monotonic()
                answer = await client.get(f"{_JOBS}?states=queued&limit={_LISTED}")
                found.append(time.monotonic() - began)
                assert len(answer["jobs"]) == _LISTED
            await client.post(f"{_JOBS}/{first[0]}/cancel")
            await until_all_are_over(client)
    return found


def print_results(console: Console, results: Results) -> bool:
    """Print a table; whether listing was fast enough."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("", "JOBS", "SUBMIT S", "ALL S", "JOBS/S", "NODE CPU S", "OTHER CPU S", "DB MB")
    for title in titles:
        table.add_column(title, justify="right" if title else "left")
    for run in results.runs:
        table.add_row(
            run.name,
            str(run.jobs),
            f"{run.submit_seconds:.2f}",
            f"{run.seconds:.1f}",
            f"{run.jobs / run.seconds:.1f}",
            f"{run.node_cpu_seconds:.1f}",
            f"{run.jobs_cpu_seconds:.1f}",
            f"{run.database_bytes / 1e6:.1f}",
        )
    console.print(table)
    median, most = statistics.median(results.list_seconds), max(results.list_seconds)
    console.print(
        f"\n{results.listed} queued jobs are listed in {median * 1e3:.0f} ms (median of "
        f"{len(results.list_seconds)}; at most {most * 1e3:.0f}); the goal is "
        f"{_LIST_GOAL_SECONDS * 1e3:.0f} ms",
        highlight=False,
    )
    return median <= _LIST_GOAL_SECONDS


async def measure(arguments: argparse.Namespace) -> Results:
    """Everything, one after another."""
    date, machine = date_now(), describe_machine()
    return Results(
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        runs=[
            await measure_run("one array", arguments.jobs, array=True),
            await measure_run("one by one", arguments.jobs, array=False),
        ],
        listed=_LISTED,
        list_seconds=await measure_list(20),
    )


def main() -> int:
    """Measure; give the exit status: 1 if listing is too slow."""
    parser = argparse.ArgumentParser(description="Measure the queue of a node.")
    parser.add_argument("--jobs", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    try:
        results = asyncio.run(measure(arguments))
        save(results, arguments.output)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    fast = print_results(Console(), results)
    print(f"saved: {arguments.output}")
    return 0 if fast else 1


if __name__ == "__main__":
    sys.exit(main())
