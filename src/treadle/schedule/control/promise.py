"""One task's objective: the evidence, and whether it can be met at all."""

from __future__ import annotations

import enum

from treadle.schedule.control.chance import at_most
from treadle.schedule.control.evidence import Evidence, Standing, Verdict, milliseconds
from treadle.schedule.control.tuning import Tuning


class Outcome(enum.Enum):
    """What is known of an objective."""

    OPEN = "may be met"
    CANNOT = "cannot be met, not even alone"
    BESIDE = "cannot be met beside lower work"


class Promise:
    """An objective that is followed."""

    def __init__(self, objective_seconds: float, tuning: Tuning, now: float) -> None:
        self.evidence = Evidence(objective_seconds, tuning, now)
        self.outcome = Outcome.OPEN
        self.impossible = ""
        self.verdict = Verdict(standing=Standing.UNKNOWN, words="no latencies yet")
        self._tuning = tuning
        self._missed_since: float | None = None
        self._retry_at = now
        self._wait = tuning.retry_first

    @property
    def objective_seconds(self) -> float:
        return self.evidence.objective_seconds

    @property
    def steers(self) -> bool:
        """Whether its misses are worth anything to turn knobs for."""
        return self.outcome is Outcome.OPEN

    def judge(self, now: float) -> Verdict:
        """Judge it anew. What could not be met is tried again once it is met, or after a while."""
        self.verdict = self.evidence.judge(now)
        if self.verdict.standing is Standing.MISSED and self.evidence.forgive(now):
            self.verdict = self.evidence.judge(now)
        if (self.impossible or not self.steers) and self._well(now):
            self.outcome, self.impossible, self._missed_since = Outcome.OPEN, "", None
            self._wait = self._tuning.retry_first
        elif not self.steers and now >= self._retry_at:
            self.outcome, self._missed_since = Outcome.OPEN, None
        return self.verdict

    def _well(self, now: float) -> bool:
        """Whether it is met, by as many requests as show that."""
        sums = self.evidence.sums(now)
        tuning = self._tuning
        return self.verdict.standing in (Standing.MET, Standing.HELD) and (
            at_most(0, sums.count, tuning.allowed_fraction) < tuning.trust
        )

    def missed_for(self, now: float, *, helpless: bool) -> float:
        """For how long it has been seen to be missed although nothing more protects it."""
        if not (helpless and self.verdict.standing is Standing.MISSED):
            self._missed_since = None
            return 0.0
        if self._missed_since is None:
            self._missed_since = now
        return max(0.0, self.evidence.last_late - self._missed_since)

    def conclude(self, now: float, *, timeout: bool) -> bool:
        """Judge what it takes alone, with nothing else running; False: too early to tell."""
        sums = self.evidence.sums(now)
        missed = self.verdict.standing is Standing.MISSED
        if missed and (timeout or sums.count >= self._tuning.alone_count):
            self._set(Outcome.CANNOT, f"cannot be met: alone it takes {self._alone(now)}", now)
        elif self._well(now):
            told = f"cannot be met beside lower work: alone it takes {self._alone(now)}"
            self._set(Outcome.BESIDE, told, now)
        elif timeout:
            told = f"not met; too few requests alone ({sums.count}) to tell whether it can be"
            self._set(Outcome.BESIDE, told, now)
        else:
            return False
        return True

    def give_up(self, why: str, now: float) -> None:
        """Nothing more protects it, and what it takes alone is not tried."""
        told = f"missed at the most protective settings; what it takes alone is not tried: {why}"
        self._set(Outcome.BESIDE, told, now)

    def _alone(self, now: float) -> str:
        p99 = self.evidence.p99_seconds(now)
        promised = milliseconds(self.objective_seconds)
        known = "an unknown time" if p99 is None else milliseconds(p99)
        sums = self.evidence.sums(now)
        return f"{known} at P99 (of {sums.count} requests), {promised} promised"

    def _set(self, outcome: Outcome, words: str, now: float) -> None:
        self.outcome, self.impossible = outcome, words
        self._retry_at = now + self._wait
        self._wait = min(self._tuning.retry_most, 2 * self._wait)
