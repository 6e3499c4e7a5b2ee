"""Arrivals as they once were, read from a table and played again at another rate."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from treadle.bench.arrivals import Floats
from treadle.errors import ConfigError

_PRECISION = 1e-3
"""Of the pace at which the busiest second has the wanted rate."""
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Recorded arrivals; as a pattern they are played faster or slower, and again from the start.

    All gaps keep their proportions, so a trace at ten times its rate takes a tenth of its time.
    """

    times: Floats
    """Seconds from the start, ascending."""
    seconds: float
    """Length of what is played."""
    by_peak: bool = False
    """Rates are those of the busiest second, not of the mean."""

    @property
    def rate(self) -> float:
        """Its own requests per second: mean, or busiest second."""
        return self.busiest(1.0) if self.by_peak else len(self.times) / self.seconds

    def busiest(self, seconds: float) -> float:
        """Most arrivals within so many of its own seconds."""
        return float((np.searchsorted(self.times, self.times + seconds) - _ranks(self.times)).max())

    def pace(self, rate: float) -> float:
        """How many of its own seconds pass in one when it is played at ``rate``.

        Raises:
            ConfigError: If no second of it can be as busy as that.
        """
        if not self.by_peak:
            return rate * self.seconds / len(self.times)
        if rate > len(self.times):
            raise ConfigError(
                f"the trace's {len(self.times)} arrivals give no second with {rate:g} of them"
            )
        slow, fast = 0.0, self.seconds
        while fast - slow > _PRECISION * fast:
            middle = (slow + fast) / 2
            slow, fast = (middle, fast) if self.busiest(middle) < rate else (slow, middle)
        return fast

    def __call__(
        self, rate: float, seconds: float, random: np.random.Generator, phase: float
    ) -> Floats:
        """Play it; each model begins at another place, and chance has no part in it."""
        pace = self.pace(rate)
        moved = np.sort((self.times - phase * self.seconds) % self.seconds) / pace
        length = self.seconds / pace
        rounds = np.arange(np.ceil(seconds / length))[:, None] * length
        times: Floats = (rounds + moved).ravel()
        return times[times < seconds]


def read_trace(
    path: Path,
    column: str | None = None,
    window: tuple[float, float] | None = None,
    *,
    by_peak: bool = False,
) -> Trace:
    """Read a table with a line of headings (CSV).

    Args:
        path: The file; if it is relative and not here, it is looked for in ``TREADLE_DATA``.
        column: Heading of the arrival times, in seconds or as dates; the first unless given.
        window: Only what lies between these two of its own seconds, counted from its first.
        by_peak: Rates are those of the busiest second.

    Raises:
        ConfigError: If it cannot be read; says where and why.
    """
    found = _find(path)
    try:
        with found.open(newline="", encoding="utf-8-sig") as file:
            times = np.sort(np.fromiter(_times(path, file, column), np.float64))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(times) < _FEWEST:
        raise ConfigError(f"{path}: {len(times)} arrivals; a trace has at least {_FEWEST}")
    times -= times[0]
    begin, end = window or (0.0, times[-1] * len(times) / (len(times) - 1))
    times = times[(begin <= times) & (times < end)] - begin
    if len(times) < _FEWEST or not end > begin:
        raise ConfigError(f"{path}: fewer than {_FEWEST} arrivals between {begin:g} and {end:g} s")
    return Trace(times=times, seconds=end - begin, by_peak=by_peak)


def _find(path: Path) -> Path:
    """The file itself, or the one of this name among the public data."""
    data = os.environ.get("TREADLE_DATA")
    if data and not path.is_absolute() and not path.exists():
        return Path(data) / path
    return path


def _times(path: Path, file: Iterator[str], column: str | None) -> Iterator[float]:
    """Seconds, from any zero."""
    lines = csv.reader(file)
    headings = [heading.strip() for heading in next(lines, [])]
    name = column or next(iter(headings), "")
    if name not in headings:
        raise ConfigError(f"{path}: no column {name!r}; there are {', '.join(headings) or 'none'}")
    place = headings.index(name)
    first: float | datetime | None = None
    for cells in lines:
        if not cells:
            continue
        text = cells[place].strip() if place < len(cells) else ""
        try:
            when = _when(text)
            first = when if first is None else first
            yield _between(first, when)
        except (ValueError, TypeError):  # a date and a number, or a zone and none: TypeError
            raise ConfigError(
                f"{path}:{lines.line_num}: {name}: {text!r}; allowed: seconds, or a date such as "
                "2023-11-16 18:17:03.98, and the same in every line"
            ) from None


def _when(text: str) -> float | datetime:
    try:
        seconds = float(text)
    except ValueError:
        return datetime.fromisoformat(text)
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def _between(first: float | datetime, when: float | datetime) -> float:
    """Seconds; of dates only the difference has all their digits."""
    if isinstance(first, datetime) and isinstance(when, datetime):
        return (when - first).total_seconds()
    if isinstance(first, datetime) or isinstance(when, datetime):
        raise TypeError
    return when - first


def _ranks(times: Floats) -> Floats:
    return np.arange(len(times), dtype=np.float64)
