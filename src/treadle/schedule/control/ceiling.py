"""The level that failed: below it one stays for a while, and longer each time it fails again."""

from __future__ import annotations

from treadle.schedule.control.tuning import Tuning


class Ceiling:
    """What an objective was seen to bear."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._level: float | None = None
        self._until = 0.0
        self._wait = tuning.probe_first

    def failed(self, level: float, now: float) -> None:
        """An objective was missed at ``level``, having been met before."""
        near = 2 * self._tuning.margin
        if self._level is not None and abs(level - self._level) <= near:
            self._wait = min(self._tuning.probe_most, 2 * self._wait)
        else:
            self._wait = self._tuning.probe_first
        self._level, self._until = level, now + self._wait

    def limit(self, now: float) -> float:
        """The highest level to go to now."""
        if self._level is None or now >= self._until:
            return 1.0
        return max(0.0, self._level - self._tuning.margin)

    def is_near(self, level: float) -> bool:
        """Whether a level is at or above the one that failed, if only long ago."""
        return self._level is not None and level >= self._level - self._tuning.margin

    def words(self, now: float) -> str:
        assert self._level is not None
        left = max(0.0, self._until - now)
        return f"level {self._level:.2f} was too much, and is not tried again for {left:.0f} s"

    def forget(self) -> None:
        """The neighbours are others now."""
        self._level, self._wait = None, self._tuning.probe_first
