"""What the results come to: each cell over native alone, and each mode over its cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle.bench.colocation.arrivals import BLOCK_SECONDS, draw_arrivals
from treadle.bench.colocation.cells import Cell, parse_cell
from treadle.bench.colocation.codec import unpack
from treadle.bench.colocation.statistics import (
    Estimate,
    Floats,
    Requests,
    geometric_mean,
    percentile,
    percentile_ratio,
    rate_ratio,
    steps_by_block,
)
from treadle.bench.colocation.store import Slice, Store
from treadle.bench.colocation.workloads import NONE
from treadle.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell. What cannot be told is None; ``note`` says why."""

    cell: str
    requests: int
    seconds: float
    p50: Estimate | None = None
    """Seconds."""
    p99: Estimate | None = None
    """Seconds."""
    p50_over_native: Estimate | None = None
    p99_over_native: Estimate | None = None
    unanswered: int = 0
    """Requests still waiting when the server gave up: the percentiles are lower bounds then."""
    busy_fraction: float | None = None
    """Of the time, what the critical requests take when they run alone."""
    steps_per_second: float | None = None
    kept_of_alone: Estimate | None = None
    """Training over training alone."""
    kept_of_left: Estimate | None = None
    """Training over what the critical load leaves of it."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A mode over all pairs that were measured in it."""

    mode: str
    pairs: int
    p99_geometric_mean: float | None
    p99_worst: float | None
    p50_geometric_mean: float | None
    left_worst: float | None
    left_mean: float | None
    alone_worst: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All rows, in the order of measurement, and a summary of each mode."""

    rows: tuple[Row, ...]
    summaries: tuple[Summary, ...]
    devices: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_report(store: Store) -> Report:
    """Read everything that was measured.

    Raises:
        ConfigError: If the results do not fit this program.
    """
    cells = [parse_cell(name) for name in store.cells()]
    rows = [row_of(store, cell) for cell in cells]
    devices = {
        str(facts["device"])
        for record in store
        if isinstance(record, Slice)
        for facts in record.facts.values()
        if "device" in facts
    }
    return Report(
        rows=tuple(rows),
        summaries=tuple(_summaries(cells, rows)),
        devices=tuple(sorted(devices)),
    )


def requests_of(slices: Sequence[Slice]) -> tuple[Requests, int]:
    """The requests of a cell, and how many of them were never answered.

    One that was never answered has waited at least until the server gave up: that lower bound
    stands for it, so that an overloaded mode does not look better than it is.

    Raises:
        ConfigError: If the arrivals cannot be drawn again as they were.
    """
    blocks, seconds, unanswered = [], [], 0
    for part in slices:
        assert part.rate is not None
        arrivals = draw_arrivals(part.rate, part.seed, part.first, part.blocks)
        answered = unpack(part.latencies) if part.latencies else np.empty(0)
        if len(arrivals) != part.arrived or len(answered) > len(arrivals):
            raise ConfigError(f"{part.cell}: these arrivals were drawn by another program")
        missing = part.waited - arrivals[len(answered) :]
        unanswered += len(missing)
        blocks.append(part.first + (arrivals / BLOCK_SECONDS).astype(np.intp))
        seconds.append(np.concatenate([answered, missing]))
    return Requests(block=np.concatenate(blocks), seconds=np.concatenate(seconds)), unanswered


def steps_of(slices: Sequence[Slice]) -> Floats:
    """Training steps of a cell by block; shape ``[blocks]``."""
    parts = [
        steps_by_block(unpack(part.steps), part.blocks, BLOCK_SECONDS)
        for part in slices
        if part.steps
    ]
    return np.concatenate([np.empty(0), *parts])


def row_of(store: Store, cell: Cell) -> Row:
    """What one cell comes to, over what it is compared with."""
    slices = store.slices(cell)
    row = Row(
        cell=str(cell),
        requests=sum(part.arrived for part in slices),
        seconds=sum(part.seconds for part in slices),
        note=(store.failure(cell) or "").partition("\n")[0],
    )
    if not slices:
        return row
    if cell.critical != NONE:
        row = _with_latency(row, store, cell, slices)
    if cell.background != NONE:
        row = _with_training(row, store, cell, slices)
    return row


def _with_latency(row: Row, store: Store, cell: Cell, slices: Sequence[Slice]) -> Row:
    requests, unanswered = requests_of(slices)
    blocks = store.blocks(cell)
    calibration = store.calibration(cell.critical)
    service = None if calibration is None else calibration.service_seconds
    row = dataclasses.replace(
        row,
        unanswered=unanswered,
        p50=percentile(requests, blocks, 50),
        p99=percentile(requests, blocks, 99),
        busy_fraction=None if service is None else row.requests * service / row.seconds,
    )
    native = cell.baselines[0] if cell.baselines else cell
    alone = store.slices(native)
    if not alone:
        return _noting(row, f"no {native} to compare with")
    alone_requests, _ = requests_of(alone)
    common = min(blocks, store.blocks(native))
    return dataclasses.replace(
        row,
        p50_over_native=percentile_ratio(requests, alone_requests, common, 50),
        p99_over_native=percentile_ratio(requests, alone_requests, common, 99),
    )


def _with_training(row: Row, store: Store, cell: Cell, slices: Sequence[Slice]) -> Row:
    steps = steps_of(slices)
    row = dataclasses.replace(row, steps_per_second=float(steps.mean()) / BLOCK_SECONDS)
    native = cell.baselines[-1] if cell.baselines else cell
    alone = store.slices(native)
    if not alone:
        return _noting(row, f"no {native} to compare with")
    alone_steps = steps_of(alone)
    busy = 0.0 if cell.critical == NONE else row.busy_fraction
    left = None
    if busy is not None and busy < 1:
        left = rate_ratio(steps, alone_steps, 1 / (1 - busy))
    return dataclasses.replace(
        row, kept_of_alone=rate_ratio(steps, alone_steps, 1.0), kept_of_left=left
    )


def _noting(row: Row, note: str) -> Row:
    return dataclasses.replace(row, note="; ".join(filter(None, [row.note, note])))


def _summaries(cells: Sequence[Cell], rows: Sequence[Row]) -> Iterable[Summary]:
    by_mode: dict[str, list[Row]] = {}
    for cell, row in zip(cells, rows, strict=True):
        if cell.mode.name != "alone" and row.seconds:
            by_mode.setdefault(str(cell.mode), []).append(row)
    for mode, members in by_mode.items():
        p99 = [row.p99_over_native.value for row in members if row.p99_over_native]
        p50 = [row.p50_over_native.value for row in members if row.p50_over_native]
        left = [row.kept_of_left.value for row in members if row.kept_of_left]
        alone = [row.kept_of_alone.value for row in members if row.kept_of_alone]
        yield Summary(
            mode=mode,
            pairs=len(members),
            p99_geometric_mean=geometric_mean(p99),
            p99_worst=max(p99, default=None),
            p50_geometric_mean=geometric_mean(p50),
            left_worst=min(left, default=None),
            left_mean=sum(left) / len(left) if left else None,
            alone_worst=min(alone, default=None),
        )
