"""The latencies of this process' own requests."""

from __future__ import annotations

import pytest

from treadle.monitor.latency import LatencyRing
from treadle.types import LatencyKind


def test_a_window_counts_what_was_late_in_it() -> None:
    ring = LatencyRing()
    for n in range(100):
        ring.put(0.2 if n % 10 == 0 else 0.01, at=n / 10)
    window = ring.window(4.95, 9.95, 0.1)
    assert (window.kind, window.count, window.over) == (LatencyKind.SAMPLES, 50, (5, 5))
    assert window.at == 9.95
    assert window.window_seconds == pytest.approx(5.0)
    assert window.p99_seconds == 0.2
    assert window.mean_seconds == pytest.approx(0.029)


def test_windows_one_behind_the_other_count_each_request_once() -> None:
    ring = LatencyRing()
    for n in range(100):
        ring.put(0.01, at=float(n))
    counts = [ring.window(n, n + 7, 0.1).count for n in range(-1, 105, 7)]
    assert sum(count or 0 for count in counts) == 100


def test_near_is_less_than_late() -> None:
    ring = LatencyRing()
    for latency in (0.079, 0.081, 0.1, 0.101):
        ring.put(latency, at=1.0)
    window = ring.window(0.0, 1.0, 0.1)
    assert (window.over, window.near) == ((1, 1), (3, 3))


def test_no_request_is_no_request_and_no_p99() -> None:
    window = LatencyRing().window(0.0, 5.0, 0.1)
    assert (window.count, window.over, window.p99_seconds) == (0, (0, 0), None)
    assert window.reason


def test_what_the_ring_has_forgotten_is_not_in_the_window() -> None:
    ring = LatencyRing(size=10)
    for n in range(25):
        ring.put(0.01, at=float(n))
    window = ring.window(0.0, 24.0, 0.1)
    assert (window.count, window.start) == (10, 14.0)


def test_a_ring_has_room() -> None:
    with pytest.raises(ValueError, match="one latency or more"):
        LatencyRing(size=0)
