"""``treadle bench colocation``: measure the chosen cells, then report on all that is known."""

from __future__ import annotations

import json
import math
import sys
import time

from treadle.bench.colocation.arrivals import BLOCK_SECONDS, blocks_for, count_arrivals
from treadle.bench.colocation.cells import Cell, choose_cells
from treadle.bench.colocation.measure import Bench
from treadle.bench.colocation.needs import check_gpu, check_plot
from treadle.bench.colocation.plot import draw
from treadle.bench.colocation.report import Report, Row, make_report, row_of
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.store import Failure, Store
from treadle.bench.colocation.table import as_markdown, print_tables
from treadle.bench.colocation.workloads import LOAD_SECONDS, NONE
from treadle.errors import TreadleError

_SOON = 6
"""Cells looked ahead, for what to load together."""
_OVERHEAD_SECONDS = 2.0


def run(settings: Settings) -> int:
    """Measure what ``settings`` asks for, print the report, and return an exit code.

    Returns:
        0, or 1 if a chosen cell failed. Its reason is in the results file and in the table.

    Raises:
        ConfigError: If a cell is unknown or the results file is none.
        TreadleError: If PyTorch or a GPU is missing, or matplotlib where a plot is asked for.
    """
    if settings.plot is not None:
        check_plot()
    cells = choose_cells(settings.cells, baselines=settings.baselines)
    store = Store(settings.out)
    failed = 0 if settings.report_only else measure_cells(settings, cells, store)
    report = make_report(store)
    _deliver(settings, report)
    return 1 if failed else 0


def measure_cells(settings: Settings, cells: tuple[Cell, ...], store: Store) -> int:
    """Measure each cell that is not done; returns how many failed."""
    began = time.monotonic()
    failed = 0
    todo = [cell for cell in cells if not _is_done(settings, store, cell)]
    if todo and settings.device != "cpu":
        check_gpu()
    _say(f"{len(todo)} of {len(cells)} cells to measure, about {_forecast(settings, todo):.0f} s")
    with Bench(settings) as bench:
        for number, cell in enumerate(todo):
            estimate = _estimate(settings, store, bench, cell)
            passed = time.monotonic() - began
            if settings.limit_seconds is not None and passed + estimate > settings.limit_seconds:
                _say(f"{cell}: left out, about {estimate:.0f} s of {settings.limit_seconds:.0f}")
                continue
            _say(f"{cell}: about {estimate:.0f} s")
            soon = tuple(todo[number + 1 : number + 1 + _SOON])
            try:
                _measure(settings, store, bench, cell, soon)
            except TreadleError as error:
                failed += 1
                store.append(Failure(cell=str(cell), reason=str(error)))
                _say(f"{cell}: failed: {error}")
            else:
                taken = time.monotonic() - began - passed
                _say(f"{cell}: took {taken:.0f} s: {_short(row_of(store, cell))}")
    return failed


def _measure(
    settings: Settings, store: Store, bench: Bench, cell: Cell, soon: tuple[Cell, ...]
) -> None:
    rate = None
    if cell.critical != NONE:
        calibration = store.calibration(cell.critical)
        if calibration is None:
            calibration = bench.calibrate(cell.critical, (cell, *soon))
            store.append(calibration)
        rate = calibration.rate
    first, blocks = _stretch(settings, store, cell, rate)
    store.append(bench.measure(cell, rate, first, blocks, soon))


def _stretch(settings: Settings, store: Store, cell: Cell, rate: float | None) -> tuple[int, int]:
    """First block and number of blocks of a cell's next slice."""
    first = store.blocks(cell)
    if rate is None:
        return first, max(math.ceil(settings.training_seconds / BLOCK_SECONDS) - first, 1)
    most = max(math.ceil(settings.seconds / BLOCK_SECONDS), 1)
    missing = settings.min_requests - count_arrivals(rate, settings.seed, 0, first)
    return first, blocks_for(max(missing, 1), rate, settings.seed, first, most)


def _is_done(settings: Settings, store: Store, cell: Cell) -> bool:
    if cell.critical == NONE:
        return store.blocks(cell) * BLOCK_SECONDS >= settings.training_seconds
    return store.requests(cell) >= settings.min_requests


def _estimate(settings: Settings, store: Store, bench: Bench, cell: Cell) -> float:
    """About how many seconds a cell takes, starting what is not warm yet."""
    try:
        starts = bench.start_seconds(cell)
    except TreadleError:
        return _OVERHEAD_SECONDS  # it fails at once, and says why
    return starts + _slice_seconds(settings, store, cell) + _OVERHEAD_SECONDS


def _slice_seconds(settings: Settings, store: Store, cell: Cell) -> float:
    workload = cell.critical_workload
    if workload is None:
        return settings.training_seconds
    calibration = store.calibration(cell.critical)
    rate = workload.expected_rate if calibration is None else calibration.rate
    return _stretch(settings, store, cell, rate)[1] * BLOCK_SECONDS


def _forecast(settings: Settings, cells: list[Cell]) -> float:
    """About how long all cells take if every process is started once."""
    total = LOAD_SECONDS if cells else 0.0
    for cell in cells:
        workload = cell.critical_workload
        needed = settings.training_seconds
        if workload is not None:
            needed = min(settings.seconds, settings.min_requests / workload.expected_rate)
        total += needed + _OVERHEAD_SECONDS
    workloads = {cell.critical_workload for cell in cells}
    rivals = {(cell.background_workload, cell.mode.traits) for cell in cells}
    total += sum(workload.warm_seconds for workload in workloads if workload)
    return total + sum(rival.warm_seconds for rival, _ in rivals if rival)


def _deliver(settings: Settings, report: Report) -> None:
    if settings.markdown is not None:
        settings.markdown.parent.mkdir(parents=True, exist_ok=True)
        settings.markdown.write_text(as_markdown(report))
    if settings.plot is not None:
        draw(report, settings.plot)
    if settings.as_json:
        json.dump(report.as_json(), sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        print_tables(report)


def _short(row: Row) -> str:
    """A cell in a line, as soon as it is known."""
    parts = []
    if row.p50 and row.p99:
        parts.append(f"P50 {row.p50.value * 1e3:.3f} ms, P99 {row.p99.value * 1e3:.3f} ms")
    if row.p99_over_native:
        parts.append(f"P99 {row.p99_over_native.value:.3f} x native")
    if row.steps_per_second is not None:
        parts.append(f"{row.steps_per_second:.2f} steps/s")
    return ", ".join(parts)


def _say(text: str) -> None:
    """Progress goes to standard error: standard output is the report's."""
    print(text, file=sys.stderr, flush=True)
