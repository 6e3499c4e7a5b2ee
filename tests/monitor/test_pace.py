"""How often what is read: as it changes, within a budget, spread out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.monitor.pace import (
    LEAST_SECONDS,
    LONGEST_REFRESHES,
    LONGEST_SECONDS,
    Turns,
    budget_of,
    intervals,
)

SOURCES = st.lists(
    st.tuples(st.floats(0.01, 10), st.floats(0.000_001, 0.5)), min_size=1, max_size=40
)


def test_within_the_budget_everything_is_read_as_it_changes() -> None:
    assert intervals([0.1, 1.0], [0.0001, 0.0001], 0.01) == [0.1, 1.0]


@given(SOURCES, st.sampled_from([0.01, 0.02]))
def test_nothing_is_read_faster_than_it_changes_and_all_fits(
    sources: list[tuple[float, float]], budget: float
) -> None:
    refresh, cost = [r for r, _ in sources], [c for _, c in sources]
    pace = intervals(refresh, cost, budget)
    assert all(seconds >= r for seconds, r in zip(pace, refresh, strict=True))
    longest = [
        max(LONGEST_SECONDS, LONGEST_REFRESHES * r, LONGEST_REFRESHES * LEAST_SECONDS)
        for r in refresh
    ]
    assert all(seconds <= most for seconds, most in zip(pace, longest, strict=True))
    spent = sum(c / seconds for c, seconds in zip(cost, pace, strict=True))
    assert spent <= budget * 1.000_001 or pace == pytest.approx(longest)


@pytest.mark.parametrize("budget", [0.0, -0.5, 0.000_1])
def test_where_nothing_is_left_figures_still_come(budget: float) -> None:
    assert intervals([0.02, 0.1, 1.0], [0.001] * 3, budget) == [5.0, 5.0, 10.0]


def test_what_costs_nothing_is_read_as_it_changes_whatever_is_left() -> None:
    assert intervals([0.1, 0.1], [0.0, 0.001], 0.001) == pytest.approx([0.1, 1.0])
    assert intervals([], [], 0.01) == []


def test_the_budget_is_larger_where_the_performance_monitor_is_read() -> None:
    assert (budget_of(["nvml.board"]), budget_of(["nvml.board", "nvml.gpm"])) == (0.01, 0.02)


def test_what_costs_more_is_asked_less() -> None:
    cheap, dear = intervals([0.1, 0.1], [0.0001, 0.01], 0.01)
    assert cheap < dear


def read_until(turns: Turns, end: float, start: float = 0.0) -> list[tuple[float, int]]:
    taken, now = [], start
    while now < end:
        while (index := turns.take(now)) is not None:
            taken.append((now, index))
        now += 0.001
    return taken


def test_everybody_is_read_at_once_and_then_at_its_own_pace() -> None:
    taken = read_until(Turns([0.1, 0.1, 1.0], 0.0), 10.0)
    assert sorted(index for _, index in taken[:3]) == [0, 1, 2]
    counts = [sum(1 for _, index in taken if index == i) for i in range(3)]
    assert counts == pytest.approx([100, 100, 10], abs=2)


def test_turns_are_spread_out() -> None:
    taken = read_until(Turns([1.0] * 10, 0.0), 10.0)
    moments = [round(at, 3) for at, _ in taken if at > 2.0]
    assert len(set(moments)) == len(moments)


def test_turns_that_were_missed_are_left_out() -> None:
    turns = Turns([0.1], 0.0)
    assert turns.take(0.0) == 0
    assert turns.take(100.0) == 0
    assert turns.take(100.0) is None
    assert turns.next_due is not None
    assert 100.0 < turns.next_due <= 100.1


def test_who_is_late_by_whole_turns_has_one_turn() -> None:
    turns = Turns([1.0], 0.0)
    assert turns.take(0.0) == 0
    assert turns.next_due == 0.5
    assert turns.take(2.5) == 0
    assert turns.take(2.5) is None
    assert turns.next_due == 3.5


def test_who_has_left_has_no_turn() -> None:
    turns = Turns([0.1, 0.1], 0.0)
    turns.leave({0})
    assert {index for _, index in read_until(turns, 1.0)} == {1}
    turns.leave({1})
    assert turns.next_due is None
    assert turns.take(5.0) is None


def test_a_new_pace_holds_at_once_for_who_waits_longer() -> None:
    turns = Turns([10.0, 0.1], 0.0)
    read_until(turns, 20.0)
    turns.repace([0.5, 5.0], 20.0)
    taken = read_until(turns, 40.0, start=20.0)
    assert min(at for at, index in taken if index == 0) <= 20.51
    counts = [sum(1 for _, index in taken if index == i) for i in range(2)]
    assert counts == pytest.approx([40, 4], abs=1)
