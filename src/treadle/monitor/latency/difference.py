"""What happened between two scrapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from treadle.monitor.latency.figures import Labels, Scrape
from treadle.types import NEAR_FRACTION, LatencyKind, LatencyWindow

ONLY_A_MEAN = "only a mean can be had of this metric, and a P99 does not follow from that"


def between(
    before: Scrape,
    after: Scrape,
    *,
    at: float,
    window_seconds: float,
    unit_seconds: float,
    objective_seconds: float,
) -> LatencyWindow | None:
    """The requests that were answered in between; None if the server has started anew."""
    if after.buckets:
        return _histogram(before, after, at, window_seconds, unit_seconds, objective_seconds)
    count = _grown(before.counts, after.counts)
    total = _grown(before.sums, after.sums)
    if count is None or total is None:
        return None
    mean = total * unit_seconds / count if count else None
    summary = bool(after.quantiles)
    return LatencyWindow(
        at=at,
        window_seconds=window_seconds,
        kind=LatencyKind.SUMMARY if summary else LatencyKind.MEAN,
        count=round(count),
        p99_seconds=max(after.quantiles.values()) * unit_seconds if summary else None,
        mean_seconds=mean,
        reason="a summary does not count what is late" if summary else ONLY_A_MEAN,
    )


def _histogram(
    before: Scrape,
    after: Scrape,
    at: float,
    window_seconds: float,
    unit_seconds: float,
    objective_seconds: float,
) -> LatencyWindow | None:
    new: dict[float, float] = dict.fromkeys(next(iter(after.buckets.values())), 0.0)
    if before.buckets.keys() - after.buckets.keys():
        return None  # a series has gone: the server's counters are others now
    for labels, buckets in after.buckets.items():
        old = before.buckets.get(labels, {})
        for bound, count in buckets.items():
            if count < old.get(bound, 0.0):
                return None
            new[bound] += count - old.get(bound, 0.0)
    total = _grown(before.sums, after.sums)
    counted = round(new[math.inf])
    p99 = quantile(new, 0.99)
    return LatencyWindow(
        at=at,
        window_seconds=window_seconds,
        kind=LatencyKind.HISTOGRAM,
        count=counted,
        over=beyond(new, objective_seconds / unit_seconds),
        near=beyond(new, NEAR_FRACTION * objective_seconds / unit_seconds),
        p99_seconds=None if p99 is None else p99 * unit_seconds,
        mean_seconds=total * unit_seconds / counted if total is not None and counted else None,
        reason="" if p99 is not None or not counted else "its P99 is above its largest bucket",
    )


def _grown(before: Mapping[Labels, float], after: Mapping[Labels, float]) -> float | None:
    """By how much the counters have grown together; None if one fell or has gone."""
    if before.keys() - after.keys():
        return None
    grown = [value - before.get(labels, 0.0) for labels, value in after.items()]
    return sum(grown) if all(value >= 0 for value in grown) else None


def quantile(buckets: Mapping[float, float], part: float) -> float | None:
    """A quantile from counts by upper bound, straight within its bucket.

    As Prometheus' ``histogram_quantile`` has it, but None where it is above the last bound.
    """
    wanted = buckets[math.inf] * part
    low = counted = 0.0
    if not wanted:
        return None
    for bound in sorted(buckets):
        if buckets[bound] >= wanted:
            if math.isinf(bound):
                return None
            in_bucket = buckets[bound] - counted
            low = min(low, bound)
            return low + (bound - low) * (wanted - counted) / in_bucket
        low, counted = bound, buckets[bound]
    return None


def beyond(buckets: Mapping[float, float], limit: float) -> tuple[int, int]:
    """The least and the most that can have been longer than ``limit``."""
    total = buckets[math.inf]
    # A bound that a conversion of units has moved by a rounding error is the limit itself.
    same = [bound for bound in buckets if math.isclose(bound, limit, rel_tol=1e-9)]
    at_most = max((buckets[b] for b in buckets if b <= limit or b in same), default=0.0)
    at_least = min(buckets[b] for b in buckets if b >= limit or b in same)
    return round(total - at_least), round(total - at_most)
