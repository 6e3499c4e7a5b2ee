"""What the helper's work takes, as measured, and the pace that this leaves to each source."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from treadle.monitor.pace import intervals

WARM_UP_SECONDS = 1.0
"""What comes first, such as opening pages, is not what goes on."""
FIRST_PLAN_SECONDS = 3.0
PLAN_SECONDS = 5.0
"""How often the pace is set anew."""
LEAST_SHARE = 0.2
"""Of the budget, for reads, however much all else takes."""
_WEIGHT = 1 / 8
_OTHER_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds, of the thread that asks and of the whole process."""

    thread: Callable[[], float] = time.thread_time
    process: Callable[[], float] = time.process_time


class Estimate:
    """What something usually takes: a running mean of medians of three, so no outlier moves it.

    The first three measurements take the place of what was claimed.
    """

    def __init__(self, claimed_seconds: float) -> None:
        self.seconds = claimed_seconds
        self._last: collections.deque[float] = collections.deque(maxlen=3)
        self._claimed = True

    def add(self, seconds: float) -> None:
        """Take in what it took this time."""
        self._last.append(seconds)
        if len(self._last) < 3:
            return
        usual = sorted(self._last)[1]
        self.seconds += (usual - self.seconds) * (1 if self._claimed else _WEIGHT)
        self._claimed = False


class Spending:
    """Keeps all that a process does within a budget, by the pace of the reads.

    What is not a read (the tick, looking for events and processes, waking up) is what the whole
    process takes less what its reads are thought to take: so nothing is left out, and what a read
    takes more than usual is not lost either.
    """

    def __init__(
        self,
        refresh: Sequence[float],
        claimed: Sequence[float],
        budget: float,
        *,
        now: float,
        cpu: CpuTime,
    ) -> None:
        """Begin; the first pace is the caller's.

        Args:
            refresh: How often each source changes, seconds.
            claimed: What a read of each is said to take, seconds.
            budget: CPU seconds of the whole process in a second.
            now: The clock's time.
            cpu: CPU time of this process.
        """
        self._refresh, self._budget, self._cpu = list(refresh), budget, cpu
        self._costs = [Estimate(seconds) for seconds in claimed]
        self._due = now + WARM_UP_SECONDS
        self._since: float | None = None
        self._used = self._counted = 0.0
        self._other: float | None = None

    @property
    def costs(self) -> Sequence[float]:
        """CPU seconds that a read of each source usually takes."""
        return [estimate.seconds for estimate in self._costs]

    @property
    def other(self) -> float:
        """CPU seconds in a second that all else takes; 0 until it is known."""
        return self._other or 0.0

    def add(self, source: int, seconds: float) -> None:
        """Count a read."""
        self._counted += self._costs[source].seconds
        self._costs[source].add(seconds)

    def leave(self, gone: set[int]) -> None:
        """These are not read any more."""
        for source in gone:
            self._costs[source] = Estimate(0.0)

    def plan(self, now: float) -> list[float] | None:
        """The seconds between reads of each source from now on; None if it is not time for that."""
        if now < self._due:
            return None
        used = self._cpu.process()
        if self._since is None:
            self._due = now + FIRST_PLAN_SECONDS - WARM_UP_SECONDS
            self._begin(now, used)
            return None
        other = max(0.0, used - self._used - self._counted) / (now - self._since)
        if self._other is None:
            self._other = other
        else:
            self._other += _OTHER_WEIGHT * (other - self._other)
        self._due = now + PLAN_SECONDS
        self._begin(now, used)
        left = max(self._budget - self._other, LEAST_SHARE * self._budget)
        return intervals(self._refresh, self.costs, left)

    def _begin(self, now: float, used: float) -> None:
        self._since, self._used, self._counted = now, used, 0.0
