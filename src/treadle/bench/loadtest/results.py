"""What a load test comes to, and its JSON.

One object, indented. Times are in seconds, fractions from 0 to 1, and what is not known is
``null``::

    format        1; another number when a reader of this one would misunderstand
    date          when it began, ISO 8601, UTC
    command       as it was typed
    machine       that the load comes from: cpu, cores, memory_bytes, system, load_average
    versions      of Python and the packages that matter, by name
    target        where the load goes: a socket or a URL
    server        name and version, as the server says them
    arrivals      pattern, and what it was given
    seed, seconds, warm_up_seconds, timeout_seconds, connections, processes
    loads         model, rate, p99_seconds, priority, inputs; the rate is the one asked for, or
                  the one that the search began with
    run           the run at the given rate; in a search the longer one that confirms the rate
                  that was found, null if there is none
    found         null unless a rate was searched for
      precision         wanted, as a part of the rate
      rate              the highest at which every objective held, all models together, confirmed;
                        null if there is none
      rates             the same by model
      fails_at          the lowest rate at which one did not; null if there was none
      limited_by        what kept it from going higher: objective, generator (it was late itself,
                        so the server may be able to do more) or max-rate
      trials            every run of the search, in order; those that missed may be cut short

A run::

    rate          requests/s, all models together
    seconds       that were counted, after warm_up_seconds
    verdict       held, missed (an objective), or invalid: the generator was late, so this is
                  not the load that was asked for; null without an objective
    models, total figures by model, and over all
    send_lag      p50_seconds, p99_seconds, max_seconds: how late the generator itself sent
    lag_limit_seconds
                  largest p99 of that with which a run is valid
    stopped_after_seconds
                  when it was given up, counted from the end of the warm-up, since no luck could
                  make up for the misses; null if it was not
    cpu           generator_cores, node_cores, other_cores; null for a server elsewhere, or if
                  there are several generators
    warnings      what makes these figures doubtful
    series        by second of the run, warm-up included; empty in trials

Figures are of requests that were due after the warm-up. Latency counts from when one was due::

    p99_objective_seconds
    offered, offered_per_second
    answered      right, and before the sender gave up
    refused       number by reason: answers 429 and 503
    failed        number by reason: any other answer, a wrong one, a broken connection, or none
    p50_seconds, p90_seconds, p99_seconds, p999_seconds, max_seconds
                  of answered requests, nearest rank
    p99_low_seconds, p99_high_seconds
                  95% interval of the P99, from resampled seconds; null in trials
    within_fraction
                  of offered requests, what was answered within the objective; null without one
    goodput_per_second
                  answered within the objective, or answered at all without one
"""

from __future__ import annotations

import enum

from msgspec import Struct

from treadle.bench.loadtest.loads import Load
from treadle.bench.results import CpuUse, Machine, SendLag

FORMAT = 1


class Verdict(enum.StrEnum):
    """How a run ended."""

    HELD = "held"
    MISSED = "missed"
    INVALID = "invalid"


class LimitedBy(enum.StrEnum):
    """What keeps a search from going higher."""

    OBJECTIVE = "objective"
    GENERATOR = "generator"
    MAX_RATE = "max-rate"


class LoadFigures(Struct, frozen=True, kw_only=True):
    """One model under its load, or all of them."""

    p99_objective_seconds: float | None = None
    offered: int
    offered_per_second: float
    answered: int
    refused: dict[str, int]
    failed: dict[str, int]
    p50_seconds: float | None
    p90_seconds: float | None
    p99_seconds: float | None
    p999_seconds: float | None
    max_seconds: float | None
    p99_low_seconds: float | None = None
    p99_high_seconds: float | None = None
    within_fraction: float | None
    goodput_per_second: float


class Second(Struct, frozen=True, kw_only=True):
    """One second of a run, by when requests were due."""

    second: int
    model: str
    offered: int
    answered: int
    missed: int
    p50_seconds: float | None
    p99_seconds: float | None


class LoadRun(Struct, frozen=True, kw_only=True):
    """The load at one rate."""

    rate: float
    seconds: float
    warm_up_seconds: float
    verdict: Verdict | None
    models: dict[str, LoadFigures]
    total: LoadFigures
    send_lag: SendLag | None
    lag_limit_seconds: float
    stopped_after_seconds: float | None = None
    cpu: CpuUse | None = None
    warnings: tuple[str, ...] = ()
    series: tuple[Second, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the generator kept up, so that the figures are the server's."""
        lag = self.send_lag
        return lag is not None and lag.p99_seconds <= self.lag_limit_seconds


class FoundRate(Struct, frozen=True, kw_only=True):
    """What a search came to."""

    precision: float
    rate: float | None
    rates: dict[str, float]
    fails_at: float | None
    limited_by: LimitedBy
    trials: tuple[LoadRun, ...]


class Arrivals(Struct, frozen=True, kw_only=True):
    """How requests were spread over time."""

    pattern: str
    burst: str | None = None
    trace: str | None = None
    column: str | None = None
    window: str | None = None
    peak: bool = False


class LoadTest(Struct, frozen=True, kw_only=True):
    """The whole document."""

    format: int = FORMAT
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    target: str
    server: str
    arrivals: Arrivals
    seed: int
    seconds: float
    warm_up_seconds: float
    timeout_seconds: float
    connections: int
    processes: int
    loads: tuple[Load, ...]
    run: LoadRun | None
    found: FoundRate | None
