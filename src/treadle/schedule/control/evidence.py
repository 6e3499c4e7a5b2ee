"""What a task's latencies since the last change of the knobs say about its objective."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from treadle.schedule.control.chance import at_least, at_most
from treadle.schedule.control.tuning import Tuning
from treadle.schedule.control.windows import Sums, Windows, merged_p99_seconds
from treadle.types import NEAR_FRACTION, LatencyKind, LatencyWindow

_OVERLAP = 0.05
"""Part of a window by which it may begin before the last one ended: clocks are read late."""
_COUNTED = (LatencyKind.SAMPLES, LatencyKind.HISTOGRAM)


class Standing(enum.Enum):
    """How a task stands to its objective."""

    MISSED = "missed"
    NEARLY = "nearly missed"
    HELD = "met, with no room to spare"
    MET = "met with room to spare"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A standing and why, in words."""

    standing: Standing
    words: str
    severe: bool = False


class Evidence:
    """The windows of one task, without overlaps, since the knobs last changed for it."""

    def __init__(self, objective_seconds: float, tuning: Tuning, now: float) -> None:
        self.objective_seconds = objective_seconds
        self._tuning = tuning
        self._windows = Windows()
        self._began = self._since = now
        self._ended = -math.inf
        self._newest: LatencyWindow | None = None
        self._missing = ""
        self.last_request: float = now
        """When a window that had requests ended."""
        self._forgiven = -math.inf
        self.last_late: float = -math.inf
        """When a window that surely had late requests ended."""

    @property
    def settle_seconds(self) -> float:
        """After a change, what was in line before it is not held against it for so long."""
        tuning = self._tuning
        return min(tuning.settle_most, max(tuning.settle_least, 2 * self.objective_seconds))

    def reset(self, now: float) -> None:
        """The knobs have changed: what came before says nothing about them."""
        self._windows.clear()
        self._since = now + self.settle_seconds

    def take(self, window: LatencyWindow | None, now: float) -> LatencyWindow | None:
        """Take a window in; give it back if it is new and counts requests."""
        if window is None:
            return None
        if window.count is None:
            self._missing = window.reason
        if window.count is None or not self._is_next(window, now):
            return None
        self._newest, self._missing = window, ""
        self._ended = window.at
        if window.count:
            self.last_request = window.at
        if window.over is not None and window.over[0]:
            self.last_late = window.at
        if window.start >= self._since:
            self._windows.append(window)
        short, long = self._tuning.doubts[-1][0], self._tuning.longest_seconds
        self._windows.compact(now - short, now - long - window.window_seconds)
        return window

    def _is_next(self, window: LatencyWindow, now: float) -> bool:
        slack = _OVERLAP * window.window_seconds
        follows = self._ended - slack <= window.start and self._ended < window.at <= now
        return follows and window.window_seconds >= 0 and (window.count or 0) >= 0

    def _oldest(self, now: float, horizon: float | None = None) -> float:
        """The start of the windows that a horizon reaches: the one that it cuts is whole."""
        tuning = self._tuning
        newest = self._newest.window_seconds if self._newest is not None else 0.0
        longest = tuning.doubts[-1][0]
        if horizon is not None and horizon < longest:
            return now - horizon - newest
        enough = max(self._windows.start_of(tuning.enough_count), now - tuning.longest_seconds)
        return min(now - longest - newest, enough)

    def forgive(self, now: float) -> bool:
        """Forget late requests that are over; whether there were any to forget."""
        tuning = self._tuning
        if now - self.last_late < tuning.over_seconds or self.last_late <= self._forgiven:
            return False
        since = self._windows.sums(self.last_late)
        if at_most(0, since.count, tuning.allowed_fraction) >= tuning.trust:
            return False
        kept = self._windows.since(self.last_late)
        self._windows.clear()
        for window in kept:
            self._windows.append(window)
        self._forgiven = self.last_late
        return True

    def sums(self, now: float) -> Sums:
        """Over the longest horizon."""
        return self._windows.sums(self._oldest(now))

    def p99_seconds(self, now: float) -> float | None:
        """Of all requests within the longest horizon."""
        return merged_p99_seconds(self._windows.since(self._oldest(now)))

    def judge(self, now: float) -> Verdict:
        """How the task stands now."""
        if (reason := self._why_unknown(now)) is not None:
            return Verdict(standing=Standing.UNKNOWN, words=reason)
        newest = self._newest
        if newest is not None and not self.counted:
            return self._judge_quantile(now, summary=newest.kind is LatencyKind.SUMMARY)
        return self._judge_counts(now)

    def _why_unknown(self, now: float) -> str | None:
        newest = self._newest
        if newest is None:
            waited = now - self._began
            since = f", for {waited:.0f} s" if waited >= 1 else ""
            return self._missing or f"no latencies yet{since}"
        limit = max(self._tuning.stale_seconds, 3 * newest.window_seconds)
        if now - newest.at > limit:
            why = f": {self._missing}" if self._missing else ""
            return f"its latencies are {now - newest.at:.1f} s old{why}"
        if newest.count and newest.over is None and newest.p99_seconds is None:
            return newest.reason or "of its latencies, neither a P99 nor counts are known"
        if now - self.last_request > self._tuning.recover_seconds:
            return f"no request for {now - self.last_request:.0f} s"
        return None

    @property
    def counted(self) -> bool:
        """Whether late requests are counted: a P99 alone does not say since when it holds."""
        newest = self._newest
        return newest is not None and newest.kind in _COUNTED and newest.over is not None

    def _judge_counts(self, now: float) -> Verdict:
        tuning = self._tuning
        allowed = tuning.allowed_fraction
        sums = Sums()
        doubt = 0.0
        for horizon, doubt in tuning.doubts:
            sums = self._windows.sums(self._oldest(now, horizon))
            if sums.over_least and at_least(sums.over_least, sums.count, allowed) < doubt:
                return Verdict(
                    standing=Standing.MISSED,
                    words=self._words(sums),
                    severe=sums.over_least
                    >= max(tuning.severe_count, tuning.severe_fraction * sums.count),
                )
        words = self._words(sums)
        if sums.over_most > sums.over_least and (
            at_least(sums.over_most, sums.count, allowed) < doubt
        ):
            return Verdict(standing=Standing.UNKNOWN, words=f"its buckets cannot tell: {words}")
        nearly = tuning.nearly_fraction * sums.count
        if sums.count >= tuning.nearly_count and sums.over_least >= max(1.0, nearly):
            return Verdict(standing=Standing.NEARLY, words=words)
        if sums.count and at_most(sums.near_most, sums.count, allowed) < tuning.trust:
            return Verdict(standing=Standing.MET, words=words)
        return Verdict(standing=Standing.HELD, words=words)

    def _judge_quantile(self, now: float, *, summary: bool) -> Verdict:
        """Of a P99 alone: how many were late is not known, nor, of a summary, since when."""
        known = [window for window in self._windows.since(self._oldest(now)) if window.count]
        p99s = [window.p99_seconds for window in known if window.p99_seconds is not None]
        if not p99s:
            return Verdict(standing=Standing.HELD, words="no requests since the last change")
        count = sum(window.count or 0 for window in known)
        own = " over the server's own window" if summary else ""
        words = (
            f"a P99 of {milliseconds(p99s[-1])}{own},"
            f" {milliseconds(self.objective_seconds)} promised"
        )
        if p99s[-1] > self.objective_seconds:
            return Verdict(standing=Standing.NEARLY, words=words)
        near = max(p99s) > NEAR_FRACTION * self.objective_seconds
        few = at_most(0, count, self._tuning.allowed_fraction) >= self._tuning.trust
        return Verdict(standing=Standing.HELD if near or few else Standing.MET, words=words)

    def _words(self, sums: Sums) -> str:
        if not sums.count:
            return "no requests since the last change"
        late = f"{sums.over_least}"
        if sums.over_most > sums.over_least:
            late += f" to {sums.over_most}"
        fraction = sums.over_most / sums.count
        return (
            f"{late} of {sums.count} requests over {milliseconds(self.objective_seconds)}"
            f" ({fraction:.1%}, {self._tuning.allowed_fraction:.0%} allowed)"
        )


def milliseconds(seconds: float) -> str:
    """A latency for a person."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
