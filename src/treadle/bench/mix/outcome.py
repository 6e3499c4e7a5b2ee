"""What plays come to: figures from times, and the file in which they add up.

Times are in seconds from the start of the load, fractions from 0 to 1; what is not known is
``null``. A request that was not answered counts as late.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from treadle.bench.colocation.codec import pack
from treadle.bench.figures import percentile
from treadle.bench.results import Machine, to_json
from treadle.errors import TreadleError

FORMAT = 1
LATE_FRACTION = 0.01
"""More late requests than this, and the objective is not met."""
BAD_FRACTION = 0.05
"""A second with more late requests than this is a bad one."""

Floats = NDArray[np.float64]


class ServiceFigures(Struct, frozen=True, kw_only=True):
    """One service under its load."""

    name: str
    model: str
    rate: float
    bursts: tuple[str, ...] = ()
    p99_objective_seconds: float
    offered: int
    answered: int
    p50_seconds: float | None
    p99_seconds: float | None
    """Of all that were offered; null if it was not answered."""
    max_seconds: float | None
    late: int
    met: bool
    service_seconds: float
    """A request alone, for the host, when the service started: others may have run then."""
    device_seconds: float
    offered_by_second: list[int]
    late_by_second: list[int]
    """By when they were due."""
    last_bad_second: int | None
    latencies: str
    """In the order in which they were due, packed as in the measurement of sharing."""


class TrainerFigures(Struct, frozen=True, kw_only=True):
    """One trainer, while the load lasted."""

    name: str
    steps: int
    samples_per_second: float
    longest_pause_seconds: float | None
    """Between two steps."""


class Sample(Struct, frozen=True, kw_only=True):
    """What the node told at one moment."""

    at: float
    level: float | None = None
    """Of the controller; null where there is no GPU."""
    action: str = ""
    reason: str = ""
    knobs: dict[str, float] = {}
    power_watts: float | None = None


class Run(Struct, frozen=True, kw_only=True):
    """One scenario in one mode."""

    scenario: str
    mode: str
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    device: str
    scale: str
    seed: int
    seconds: int
    cooperative: bool
    failed: str = ""
    """Why there are no figures."""
    services: list[ServiceFigures] = []
    trainers: list[TrainerFigures] = []
    samples: list[Sample] = []
    settled_seconds: float | None = None
    energy_joules: float | None = None
    energy_from: str = ""
    """The counter, power, or why it is not known."""


class Document(Struct, frozen=True, kw_only=True):
    """The file: every run, the oldest first."""

    format: int = FORMAT
    runs: list[Run] = []


def service_figures(
    name: str,
    model: str,
    rate: float,
    bursts: Sequence[str],
    objective: float,
    seconds: int,
    arrays: Mapping[str, Floats],
) -> ServiceFigures:
    """Sum up a service from what it has written: ``due``, ``latencies`` and ``service``."""
    due, latencies = arrays["due"], arrays["latencies"]
    offered, answered = len(due), len(latencies)
    all_of_them = np.concatenate([latencies, np.full(offered - answered, np.inf)])
    late = all_of_them > objective
    by_second = np.minimum(due.astype(np.int64), seconds - 1)
    offered_by_second = np.bincount(by_second, minlength=seconds)
    late_by_second = np.bincount(by_second, weights=late, minlength=seconds).astype(np.int64)
    bad = np.flatnonzero(late_by_second > BAD_FRACTION * offered_by_second)
    p99 = percentile(all_of_them, 99)
    return ServiceFigures(
        name=name,
        model=model,
        rate=rate,
        bursts=tuple(bursts),
        p99_objective_seconds=objective,
        offered=offered,
        answered=answered,
        p50_seconds=percentile(latencies, 50),
        p99_seconds=None if p99 is None or np.isinf(p99) else p99,
        max_seconds=float(latencies.max()) if answered else None,
        late=int(late.sum()),
        met=bool(late.sum() <= LATE_FRACTION * offered),
        service_seconds=float(arrays["service"][0]),
        device_seconds=float(arrays["service"][1]),
        offered_by_second=offered_by_second.tolist(),
        late_by_second=late_by_second.tolist(),
        last_bad_second=int(bad[-1]) if len(bad) else None,
        latencies=pack(latencies),
    )


def trainer_figures(
    name: str, zero: float, seconds: int, arrays: Mapping[str, Floats]
) -> TrainerFigures:
    """Sum up a trainer from what it has written: ``finished`` and ``samples`` a step."""
    finished = arrays["finished"] - zero
    inside = finished[(finished >= 0) & (finished < seconds)]
    # From step to step, so that slow steps are not rounded to whole ones.
    whole = np.concatenate([finished[finished < 0][-1:], inside])
    steps, length = len(whole) - 1, float(whole[-1] - whole[0]) if len(whole) else 0.0
    rate = steps / length if steps > 0 and length > 0 else 0.0
    return TrainerFigures(
        name=name,
        steps=len(inside),
        samples_per_second=rate * float(arrays["samples"][0]),
        longest_pause_seconds=float(np.diff(whole).max()) if steps > 0 else None,
    )


def settled_seconds(samples: Sequence[Sample]) -> float | None:
    """When the level was first seen as it stayed to the end; None if nobody told a level."""
    levels = [(one.at, one.level) for one in samples if one.level is not None]
    if not levels:
        return None
    settled = 0.0
    for (_, before), (at, after) in itertools.pairwise(levels):
        if before != after:
            settled = at
    return settled


def power_joules(samples: Sequence[Sample]) -> float | None:
    """Energy by the power that was told (the trapezoidal rule); None if it was not."""
    told = [(one.at, one.power_watts) for one in samples if one.power_watts is not None]
    if len(told) <= 1:
        return None
    times, watts = np.array(told, np.float64).T
    return float(np.trapezoid(watts, times))


def write_arrays(file: Path, **arrays: Floats) -> None:
    """Write arrays so that the file is whole as soon as it is there."""
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    fresh.replace(file)


def read_arrays(file: Path) -> dict[str, Floats]:
    """Read what ``write_arrays`` wrote."""
    with np.load(file) as found:
        return {name: np.asarray(found[name], np.float64) for name in found.files}


def read_document(file: Path) -> Document:
    """Read the file; an empty document if there is none yet.

    Raises:
        TreadleError: If it is something else.
    """
    try:
        document = msgspec.json.decode(file.read_bytes(), type=Document)
    except FileNotFoundError:
        return Document()
    except (OSError, msgspec.DecodeError) as error:
        raise TreadleError(f"{file} has no results of this measurement: {error}") from error
    if document.format != FORMAT:
        raise TreadleError(f"{file} has format {document.format}, this is {FORMAT}")
    return document


def add_run(file: Path, run: Run) -> Document:
    """Add a run to the file, and return what it holds now.

    Raises:
        TreadleError: If that is not possible.
    """
    document = read_document(file)
    document = Document(runs=[*document.runs, run])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_bytes(to_json(document))
        fresh.replace(file)
    except OSError as error:
        raise TreadleError(f"cannot write {file}: {error.strerror}") from error
    return document
