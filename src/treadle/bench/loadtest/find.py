"""Finds the highest rate at which a load holds, by asking again and again.

Doubling brackets it, bisection narrows the bracket, and a longer run confirms what was found.
What one look says is chance in part: before that run the upper end is looked at once more, and if
the run misses, the rate goes down a step. So neither one bad second nor one lucky trial decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from treadle.bench.loadtest.results import LimitedBy, Verdict

_LOWEST_PART = 2.0**-10
"""Of the start: a rate below that is not looked for."""
_MOST_SEARCHES = 3
_MOST_CONFIRMATIONS = 10


class Trial(Protocol):
    """Tries one rate."""

    async def __call__(self, rate: float, *, confirm: bool) -> Verdict:
        """Say how it ended; for longer and to the end if it is to confirm."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Between which rates the highest lies."""

    holds: float | None
    fails: float | None
    limited_by: LimitedBy


async def find_highest(trial: Trial, *, start: float, precision: float, most: float) -> Bracket:
    """Find the highest rate that holds.

    Args:
        trial: Tries one.
        start: The rate to begin with.
        precision: How far apart the two ends may be, as a part of the rate.
        most: Nothing is tried above this.

    Returns:
        What holds is confirmed, or None.
    """
    search = _Search(trial, precision, most, start * _LOWEST_PART)
    await search.narrow(min(start, most))
    for _ in range(_MOST_SEARCHES - 1):
        if search.holds is None or search.fails is None:
            break
        if await search.look(search.fails) is not Verdict.HELD:
            break
        search.holds, search.fails = search.fails, None  # it was a bad second
        await search.narrow(min(2 * search.holds, most))
    return await search.confirm()


class _Search:
    def __init__(self, trial: Trial, precision: float, most: float, least: float) -> None:
        self._trial = trial
        self._step = 1 + precision
        self._most = most
        self._least = least
        self.holds: float | None = None
        self.fails: float | None = None
        self._limited_by = LimitedBy.MAX_RATE

    async def look(self, rate: float) -> Verdict:
        """Try a rate, twice where the generator was late."""
        verdict = await self._trial(rate, confirm=False)
        if verdict is Verdict.INVALID:
            verdict = await self._trial(rate, confirm=False)
        return verdict

    async def narrow(self, rate: float) -> None:
        """Bracket and bisect, beginning with this rate."""
        while True:
            verdict = await self.look(rate)
            if verdict is Verdict.HELD:
                self.holds = rate
            else:
                self._fail(rate, verdict)
            if self.holds is not None and self.fails is not None:
                if self.fails <= self.holds * self._step:
                    return
                rate = math.sqrt(self.holds * self.fails)
            elif self.holds is not None:
                if rate >= self._most:
                    self._limited_by = LimitedBy.MAX_RATE
                    return
                rate = min(2 * rate, self._most)
            elif rate / 2 < self._least:
                return
            else:
                rate /= 2

    async def confirm(self) -> Bracket:
        """Go down until a longer run holds."""
        rate, tries = self.holds, 0
        while rate is not None:
            verdict = await self._trial(rate, confirm=True)
            if verdict is Verdict.HELD:
                break
            tries += 1
            self._fail(rate, verdict)
            lower = rate / self._step
            rate = None if tries == _MOST_CONFIRMATIONS or lower < self._least else lower
        return Bracket(holds=rate, fails=self.fails, limited_by=self._limited_by)

    def _fail(self, rate: float, verdict: Verdict) -> None:
        self.fails = rate
        late = verdict is Verdict.INVALID
        self._limited_by = LimitedBy.GENERATOR if late else LimitedBy.OBJECTIVE
