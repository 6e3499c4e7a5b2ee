"""The measurement itself: servers started, checked, and asked in turns."""

from __future__ import annotations

import contextlib
import http.client
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.servers import wrk
from bench.servers.contenders import Contender
from bench.servers.environments import Environment
from bench.servers.errors import BenchError
from bench.servers.processes import Server, request
from bench.servers.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long and how often to measure."""

    rounds: int
    seconds: int
    warmup_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One server under one workload at one number of connections."""

    workload: str
    contender: str
    connections: int
    samples: list[wrk.Sample] = field(default_factory=list)
    """One for each round."""

    @property
    def requests_per_second(self) -> float:
        """Median over the rounds."""
        return statistics.median(s.requests_per_second for s in self.samples)

    @property
    def spread_fraction(self) -> float:
        """Largest minus smallest requests per second over the rounds, over their median."""
        rates = [s.requests_per_second for s in self.samples]
        return (max(rates) - min(rates)) / self.requests_per_second

    @property
    def p50_seconds(self) -> float:
        """Median over the rounds of the rounds' own medians."""
        return statistics.median(s.p50_seconds for s in self.samples)

    @property
    def p99_seconds(self) -> float:
        """Median over the rounds."""
        return statistics.median(s.p99_seconds for s in self.samples)

    @property
    def errors(self) -> int:
        """Sum over the rounds."""
        return sum(s.error_count for s in self.samples)


def measure(
    workload: Workload,
    contenders: Sequence[Contender],
    environments: Mapping[str | None, Environment],
    timing: Timing,
    folder: Path,
) -> list[Row]:
    """Measure one workload on every server that offers it.

    The servers run at the same time, but all except the one measured are paused, so that rounds
    can alternate (A B C A B C) without a start in between. A slow minute of the machine then
    falls on all of them.

    Raises:
        BenchError: If a server did not start or gave a wrong answer, or wrk failed.
    """
    offered = [c for c in contenders if c.offers(workload)]
    body_file = folder / f"{workload.name}.body"
    body_file.write_bytes(workload.body)
    rows = []
    with contextlib.ExitStack() as stack:
        servers = []
        for contender in offered:
            print(f"{workload.name}: starting {contender.name}", flush=True)
            own_folder = folder / f"{workload.name}-{contender.name}"
            own_folder.mkdir()
            launch = contender.launch(workload, own_folder, environments[contender.environment])
            server = stack.enter_context(Server(contender.name, launch))
            server.wait_ready()
            _check(server, workload, echo=contender.echoes(workload))
            server.pause()
            servers.append(server)
        for connections in workload.connections:
            new = [
                Row(workload=workload.name, contender=s.name, connections=connections)
                for s in servers
            ]
            for number in range(timing.rounds):
                for server, row in zip(servers, new, strict=True):
                    sample = _turn(server, workload, body_file, connections, timing)
                    row.samples.append(sample)
                    print(
                        f"{workload.name}: connections {connections}, round {number + 1}, "
                        f"{server.name}: {sample.requests_per_second:,.0f} requests/s",
                        flush=True,
                    )
            rows += new
    return rows


def _check(server: Server, workload: Workload, *, echo: bool) -> None:
    try:
        answer = request(server.url, workload.body, workload.headers)
    except (OSError, http.client.HTTPException) as error:
        raise server.failure(f"no answer: {error!r}") from error
    try:
        workload.check(answer, echo=echo)
    except BenchError as error:
        raise BenchError(f"{server.name}, {workload.name}: {error}") from error


def _turn(
    server: Server, workload: Workload, body_file: Path, connections: int, timing: Timing
) -> wrk.Sample:
    def ask(seconds: int) -> wrk.Sample:
        return wrk.run(
            server.url, body_file, workload.headers, connections=connections, seconds=seconds
        )

    server.resume()
    if timing.warmup_seconds > 0:
        ask(timing.warmup_seconds)
    sample = ask(timing.seconds)
    server.pause()
    return sample
