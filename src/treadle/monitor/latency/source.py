"""One server's latencies, from one scrape to the next."""

from __future__ import annotations

from treadle.monitor.latency.address import LatencyAddress
from treadle.monitor.latency.difference import between
from treadle.monitor.latency.figures import Scrape
from treadle.types import LatencyWindow

STALLED_SECONDS = 10.0


class LatencySource:
    """Turns scrapes into windows. One thread may read pages while another asks for the latest."""

    def __init__(self, address: LatencyAddress, objective_seconds: float) -> None:
        self.address = address
        self.objective_seconds = objective_seconds
        self._before: tuple[float, Scrape] | None = None
        self._newest: LatencyWindow | None = None
        self._still: tuple[float, int | None] | None = None

    def scraped(self, scrape: Scrape, at: float) -> LatencyWindow:
        """A page was read at ``at``, in monotonic seconds."""
        before, self._before = self._before, (at, scrape)
        if before is None:
            return self.missing("read once: a second reading is needed", at)
        window = between(
            before[1],
            scrape,
            at=at,
            window_seconds=at - before[0],
            unit_seconds=self.address.unit_seconds,
            objective_seconds=self.objective_seconds,
        )
        if window is None:
            return self.missing("the server has started anew", at)
        self._newest = window
        return window

    def missing(self, reason: str, at: float) -> LatencyWindow:
        """No page was read; what was read before still counts towards the next."""
        self._newest = LatencyWindow(at=at, reason=reason)
        return self._newest

    def latest(self, now: float, launches: int | None = None) -> LatencyWindow:
        """The newest window.

        ``launches`` is what the task has launched on its GPU so far. A page that counts no
        request for ten seconds while launches go on does not tell of this task.
        """
        newest = self._newest
        if newest is None:
            return LatencyWindow(at=now, reason="not read yet")
        if newest.count is None:
            return newest
        if newest.count or self._still is None:
            self._still = (newest.at, launches)
            return newest
        since, then = self._still
        if then is None or launches is None:
            self._still = (since, launches if then is None else then)
            return newest
        if launches <= then:
            self._still = (newest.at, launches)
        elif newest.at - since >= STALLED_SECONDS:
            return LatencyWindow(
                at=newest.at,
                reason=f"{self.address.metric} has not changed for {newest.at - since:.0f} s"
                " while the task launches work",
            )
        return newest
