"""What every command that measures on an event loop does around it."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from rich.console import Console

from treadle.bench.calibrate import Stage
from treadle.bench.progress import ProgressDisplay
from treadle.node.paths import state_folder

_NO_TERMINAL_WIDTH = 120
_Result = TypeVar("_Result")


def run_measurement(measure: Callable[[Stage], Coroutine[Any, Any, _Result]]) -> _Result:
    """Measure, with a progress bar on standard error if that is a terminal."""
    _raise_file_limit()
    with (
        ProgressDisplay(Console(stderr=True)) as display,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_until_told_to_end(measure(display.stage)))


def report_console() -> Console:
    """Standard output, wide enough for the tables also where it is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_NO_TERMINAL_WIDTH)


def results_file(kind: str) -> Path:
    """Where results are saved unless the user says otherwise."""
    return state_folder() / "bench" / f"{kind}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"


async def _until_told_to_end(measurement: Coroutine[Any, Any, _Result]) -> _Result:
    """Let a signal end it as Ctrl-C does: what was started ends, too."""
    measuring = asyncio.create_task(measurement)
    told: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        told.append(number)
        measuring.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await measuring
    except asyncio.CancelledError:
        if told:
            sys.exit(128 + told[0])
        raise


def _raise_file_limit() -> None:
    """Every connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
