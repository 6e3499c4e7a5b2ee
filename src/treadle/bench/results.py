"""What a measurement comes to, and its JSON.

One object, indented. Times are in seconds, fractions from 0 to 1, and what is not known is
``null``::

    format        1; another number when a reader of this one would misunderstand
    date          when the measurement began, ISO 8601, UTC
    command       as it was typed
    machine       cpu, cores, memory_bytes, system, load_average (over 1 min, before the start)
    versions      of Python and the packages that matter, by name
    seed          of the arrival times
    seconds       how long requests arrived under each policy
    load          wanted part of the capacity; null if a rate was given
    rates         offered requests/s by model
    calibration
      policy                        under which it was made; every policy gets the same rates
      parts                         wanted parts of the device's time by model, as given
      service_seconds               by model: a request alone, from send to answer, but for
                                    the time that it waited for others to fill its batch
      proportions                   by model: its part of all requests
      clients                       that kept the node busy while capacity was measured
      capacity_requests_per_second  all models together, in these proportions; null if a rate
                                    was given
      cpu, warnings                 as in a run
    runs          one for each policy, in the order they were measured
      policy
      models      figures by model
      total       figures over all models
      send_lag    p50_seconds, p99_seconds, max_seconds: how late the generator itself was
      cpu         generator_cores, node_cores, other_cores: used on average; other programs'
                  use makes figures doubtful
      warnings    what makes these figures doubtful
    comparisons   the first run against each later one
      first, second                 policies
      p99_ratio                     by model: first over second, so above 1 where second is faster
      throughput_ratio              second over first

Figures::

    priority, p99_objective_seconds   null in the total
    offered               requests that arrived
    offered_per_second
    completed             requests answered with success, also after the last arrival
    completed_per_second  only those that were answered while requests arrived
    p50_seconds, p95_seconds, p99_seconds
                          of completed requests, from when they were due; nearest rank
    objective_met_fraction
                          of requests offered to models with an objective, what was completed
                          within it
    rejected              answered 503
    failed                any other answer, a broken connection, or none in time
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.errors import TreadleError

FORMAT = 1


class Figures(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    priority: str | None = None
    p99_objective_seconds: float | None = None
    offered: int
    offered_per_second: float
    completed: int
    completed_per_second: float
    p50_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None
    objective_met_fraction: float | None
    rejected: int
    failed: int


class CpuUse(Struct, frozen=True, kw_only=True):
    """Cores that were busy on average."""

    generator_cores: float
    node_cores: float
    """Of the node's process and its workers."""
    other_cores: float
    """Of everything else on the machine."""


class SendLag(Struct, frozen=True, kw_only=True):
    """How late the generator sent, which is its own fault and not the server's."""

    p50_seconds: float
    p99_seconds: float
    max_seconds: float


class Run(Struct, frozen=True, kw_only=True):
    """One policy under the load."""

    policy: str
    models: dict[str, Figures]
    total: Figures
    send_lag: SendLag | None
    """None if nothing was sent."""
    cpu: CpuUse
    warnings: tuple[str, ...] = ()


class Calibration(Struct, frozen=True, kw_only=True):
    """What the node can do."""

    policy: str = ""
    parts: dict[str, float]
    service_seconds: dict[str, float]
    proportions: dict[str, float]
    clients: int
    capacity_requests_per_second: float | None
    cpu: CpuUse | None = None
    warnings: tuple[str, ...] = ()


class Comparison(Struct, frozen=True, kw_only=True):
    """One run against another."""

    first: str
    second: str
    p99_ratio: dict[str, float | None]
    throughput_ratio: float | None


class Machine(Struct, frozen=True, kw_only=True):
    """What the figures were measured on."""

    cpu: str | None
    cores: int
    memory_bytes: int
    system: str
    load_average: float


class Results(Struct, frozen=True, kw_only=True):
    """The whole document."""

    format: int = FORMAT
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    seed: int
    seconds: float
    load: float | None
    rates: dict[str, float]
    calibration: Calibration
    runs: tuple[Run, ...]
    comparisons: tuple[Comparison, ...]


def to_json(document: Struct) -> bytes:
    """Write a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def save(document: Struct, path: Path) -> None:
    """Write a document into a file, and its folder if need be.

    Raises:
        TreadleError: If that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(document))
    except OSError as error:
        raise TreadleError(f"cannot write {path}: {error.strerror}") from error


def date_now() -> str:
    """The date and time as the document writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
