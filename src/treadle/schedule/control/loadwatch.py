"""Urgent work's load, from the gate: that it rises is seen before anything is late."""

from __future__ import annotations

import math

from treadle.schedule.control.tuning import Tuning


class LoadWatch:
    """Two averages of how busy urgent work is, a quick one and a slow one."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._at: float | None = None
        self._quick = self._slow = 0.0

    def rose(self, busy: float | None, now: float) -> tuple[float, float] | None:
        """From and to what part of the time, if it rose by much; that is told once."""
        if busy is None or math.isnan(busy):
            return None
        busy = min(1.0, max(0.0, busy))
        if self._at is None:
            self._at, self._quick, self._slow = now, busy, busy
            return None
        elapsed, self._at = max(0.0, now - self._at), now
        quick, slow = self._tuning.load_seconds
        self._quick += (busy - self._quick) * -math.expm1(-elapsed / quick)
        self._slow += (busy - self._slow) * -math.expm1(-elapsed / slow)
        if self._quick < self._slow + self._tuning.load_rise:
            return None
        risen = self._slow, self._quick
        self._slow = self._quick
        return risen
