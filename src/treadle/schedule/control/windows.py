"""Windows one behind the other, and their sums from any moment on."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from treadle.types import LatencyWindow

_TRIM = 64
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Sums:
    """Of several windows."""

    count: int = 0
    over_least: int = 0
    over_most: int = 0
    near_most: int = 0


class Windows:
    """Asked 20 times a second for sums over some hundred windows: running totals answer that."""

    def __init__(self) -> None:
        self._windows: list[LatencyWindow] = []
        self._starts: list[float] = []
        self._before: list[Sums] = []
        """The total of all before a window."""
        self._total = Sums()
        self._merged = 0
        """So many, the oldest, are long already."""

    def clear(self) -> None:
        self._windows.clear()
        self._starts.clear()
        self._before.clear()
        self._total, self._merged = Sums(), 0

    def append(self, window: LatencyWindow) -> None:
        """Add one that begins no earlier than the last."""
        over, near = window.over or (0, 0), window.near or (0, 0)
        total = self._total
        self._windows.append(window)
        self._starts.append(window.start)
        self._before.append(total)
        self._total = Sums(
            total.count + (window.count or 0),
            total.over_least + over[0],
            total.over_most + over[1],
            total.near_most + near[1],
        )

    def compact(self, merge_before: float, forget_before: float) -> None:
        """Keep windows that began before one moment as few long ones; before another, not."""
        gone = bisect_left(self._starts, forget_before)
        del self._windows[:gone], self._starts[:gone], self._before[:gone]
        end = bisect_left(self._starts, merge_before)
        if end - self._merged < _TRIM:
            self._merged = max(0, self._merged - gone)
            return
        first = max(0, self._merged - gone)
        self._windows[first:end] = [_one(self._windows[first:end])]
        del self._starts[first + 1 : end], self._before[first + 1 : end]
        self._merged = first + 1

    def start_of(self, count: int) -> float:
        """The start of the newest windows that have so many requests together."""
        at = bisect_right(self._before, self._total.count - count, key=lambda sums: sums.count)
        return self._starts[max(0, at - 1)] if self._starts else math.inf

    def since(self, start: float) -> list[LatencyWindow]:
        """Those that began at ``start`` or later."""
        return self._windows[bisect_left(self._starts, start) :]

    def sums(self, start: float) -> Sums:
        """Over those that began at ``start`` or later."""
        first = bisect_left(self._starts, start)
        if first == len(self._starts):
            return Sums()
        total, before = self._total, self._before[first]
        return Sums(
            total.count - before.count,
            total.over_least - before.over_least,
            total.over_most - before.over_most,
            total.near_most - before.near_most,
        )


def _one(windows: list[LatencyWindow]) -> LatencyWindow:
    """Several windows as one."""
    first, last = windows[0], windows[-1]
    overs = [window.over for window in windows if window.over is not None]
    nears = [window.near for window in windows if window.near is not None]
    return LatencyWindow(
        at=last.at,
        window_seconds=last.at - first.start,
        kind=last.kind,
        count=sum(window.count or 0 for window in windows),
        over=(sum(low for low, _ in overs), sum(high for _, high in overs)) if overs else None,
        near=(sum(low for low, _ in nears), sum(high for _, high in nears)) if nears else None,
        p99_seconds=merged_p99_seconds(windows),
    )


def merged_p99_seconds(windows: list[LatencyWindow]) -> float | None:
    """The P99 of all windows together, from their own.

    Each has a hundredth of its requests above its own, and at least one at it.
    """
    known = [(w.p99_seconds, w.count) for w in windows if w.count and w.p99_seconds is not None]
    beyond = math.fsum(count / 100 for _, count in known)
    for p99, count in sorted(known, reverse=True):
        beyond -= max(1.0, count / 100)
        if beyond <= _ROUNDING:
            return p99
    return None
