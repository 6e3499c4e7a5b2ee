"""How often what is read: as it changes, within a budget, spread out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.monitor.pace import Turns, intervals

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
    spent = sum(c / seconds for c, seconds in zip(cost, pace, strict=True))
    assert spent <= budget * 1.000_001


def test_what_costs_more_is_asked_less() -> None:
    cheap, dear = intervals([0.1, 0.1], [0.0001, 0.01], 0.01)
    assert cheap < dear


def read_until(turns: Turns, end: float, step: float = 0.001) -> list[tuple[float, int]]:
    taken, now = [], 0.0
    while now < end:
        while (index := turns.take(now)) is not None:
            taken.append((now, index))
        now += step
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
