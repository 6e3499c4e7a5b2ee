"""Sums over windows, however many and however old."""

from __future__ import annotations

import random

import pytest
from tests.schedule.control.drive import counted

from treadle.schedule.control.windows import Windows, merged_p99_seconds
from treadle.types import LatencyWindow


def filled(count: int) -> tuple[Windows, list[LatencyWindow]]:
    chance, windows, kept = random.Random(1), Windows(), []
    for n in range(1, count + 1):
        requests = chance.randrange(20)
        window = counted(float(n), requests, requests // 7, requests // 3, window=1.0, p99=n / 1e3)
        windows.append(window)
        kept.append(window)
    return windows, kept


@pytest.mark.parametrize("start", [-5.0, 0.0, 17.0, 17.5, 299.0, 300.0])
def test_sums_are_those_of_the_windows_from_there_on(start: float) -> None:
    windows, kept = filled(300)
    chosen = [window for window in kept if window.start >= start]
    sums = windows.sums(start)
    assert sums.count == sum(window.count or 0 for window in chosen)
    assert sums.over_least == sum(window.over[0] for window in chosen if window.over)
    assert sums.near_most == sum(window.near[1] for window in chosen if window.near)
    assert windows.since(start) == chosen


def test_old_windows_become_few_and_nothing_of_them_is_lost() -> None:
    windows = Windows()
    for n in range(1, 2001):
        windows.append(counted(float(n), 3, 1, window=1.0))
        windows.compact(n - 30.0, n - 1000.0)
        assert len(windows.since(-1.0)) < 130
        assert windows.sums(n - 30.0).count == 3 * min(n, 30)
    left = windows.sums(-1.0)
    assert 1000 - 64 <= left.count / 3 <= 1000
    assert left.over_least * 3 == left.count


def test_so_many_requests_reach_so_far_back() -> None:
    windows = Windows()
    assert windows.start_of(1) > 1e9
    for n in range(1, 101):
        windows.append(counted(float(n), 5, window=1.0))
    assert windows.sums(windows.start_of(50)).count == 50
    assert windows.sums(windows.start_of(51)).count == 55
    assert windows.start_of(10_000) == 0.0


def test_the_p99_of_many_windows_is_about_that_of_all_requests() -> None:
    chance = random.Random(2)
    latencies = [chance.expovariate(1.0) for _ in range(5000)]
    windows = [counted(float(n), 10, p99=max(latencies[10 * n : 10 * n + 10])) for n in range(500)]
    exact = sorted(latencies)[-50]
    assert merged_p99_seconds(windows) == pytest.approx(exact, rel=0.05)
    assert merged_p99_seconds([]) is None
