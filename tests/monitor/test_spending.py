"""All that the helper does stays within its budget, as it is measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from treadle.monitor.pace import Turns
from treadle.monitor.spending import LEAST_SHARE, CpuTime, Estimate, Spending

BUDGET = 0.01
STEP_SECONDS = 0.01


class Work:
    """A process that reads sources in their turns and does something else besides."""

    def __init__(self, refresh: Sequence[float], takes: Sequence[float], other: float) -> None:
        self.takes, self.other = list(takes), other
        self.now = self.used = 0.0
        self.turns = Turns(refresh, 0.0)
        self.pace = list(refresh)
        self.spending = Spending(
            refresh,
            [0.000_01] * len(refresh),
            BUDGET,
            now=0.0,
            cpu=CpuTime(thread=lambda: 0.0, process=lambda: self.used),
        )

    def run(self, seconds: float) -> float:
        """Work on; what it took of a core."""
        before, end = self.used, self.now + seconds
        while self.now < end:
            while (source := self.turns.take(self.now)) is not None:
                self.used += self.takes[source]
                self.spending.add(source, self.takes[source])
            self.used += self.other * STEP_SECONDS
            self.now += STEP_SECONDS
            if (pace := self.spending.plan(self.now)) is not None:
                self.turns.repace(pace, self.now)
                self.pace = pace
        return (self.used - before) / seconds


def test_a_claim_holds_until_there_are_measurements() -> None:
    cost = Estimate(0.001)
    cost.add(0.5)  # the first read loads what it needs
    cost.add(0.002)
    assert cost.seconds == 0.001
    cost.add(0.002)
    assert cost.seconds == 0.002


def test_one_read_that_takes_long_does_not_count_and_many_do() -> None:
    cost = Estimate(0.001)
    for _ in range(10):
        cost.add(0.001)
    cost.add(10.0)
    for _ in range(2):
        cost.add(0.001)
    assert cost.seconds == 0.001
    for _ in range(100):
        cost.add(0.004)
    assert cost.seconds == pytest.approx(0.004, rel=0.01)
    for _ in range(100):
        cost.add(0.0)
    assert cost.seconds == pytest.approx(0.0, abs=0.000_05)
    for _ in range(200):
        cost.add(0.0005)
    assert cost.seconds == pytest.approx(0.0005, rel=0.01)


def test_within_the_budget_all_is_read_as_it_changes() -> None:
    work = Work([0.1, 1.0], [0.000_1, 0.001], other=0.005)
    work.run(30.0)
    assert work.pace == [0.1, 1.0]


@pytest.mark.parametrize("other", [0.0, 0.002, 0.006])
def test_what_costs_more_than_was_claimed_is_read_less_often_until_all_fits(other: float) -> None:
    work = Work([0.1] * 4 + [1.0] * 2, [0.000_1, 0.000_3, 0.000_7, 0.001, 0.001, 0.004], other)
    assert work.run(3.0) > BUDGET
    work.run(20.0)
    assert work.run(60.0) == pytest.approx(BUDGET, rel=0.03)
    assert work.spending.other == pytest.approx(other, abs=0.000_3)
    assert work.pace[0] < work.pace[1] < work.pace[2] < work.pace[3]


def test_what_all_else_takes_is_taken_from_the_reads_and_given_back() -> None:
    work = Work([0.1], [0.001], other=0.0)
    work.run(30.0)
    calm = work.pace[0]
    work.other = 0.005
    work.run(60.0)
    busy = work.pace[0]
    assert calm == pytest.approx(0.1, rel=0.01)
    assert busy == pytest.approx(0.2, rel=0.03)
    work.other = 0.0
    work.run(60.0)
    assert work.pace[0] == pytest.approx(calm, rel=0.03)


def test_a_part_is_left_to_the_reads_though_all_else_takes_everything() -> None:
    work = Work([0.1], [0.001], other=0.02)
    work.run(40.0)
    assert work.pace[0] == pytest.approx(0.001 / (LEAST_SHARE * BUDGET), rel=0.01)


def test_reads_that_now_and_then_take_long_are_paid_for() -> None:
    work = Work([0.1], [0.000_5], other=0.0)
    for _ in range(20):  # one read in forty takes twenty times as long
        work.takes = [0.000_5]
        work.run(4.0)
        work.takes = [0.01]
        work.run(0.1)
    used = work.used
    for _ in range(20):
        work.takes = [0.000_5]
        work.run(4.0)
        work.takes = [0.01]
        work.run(0.1)
    assert (work.used - used) / 82.0 < BUDGET * 1.1


def test_who_has_left_takes_nothing() -> None:
    work = Work([0.1, 0.1], [0.001, 0.001], other=0.0)
    work.run(30.0)
    both = work.pace[0]
    work.turns.leave({1})
    work.spending.leave({1})
    work.run(30.0)
    assert work.pace[0] < both
