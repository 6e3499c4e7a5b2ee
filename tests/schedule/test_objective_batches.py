"""Batches that are sized by what is promised: rules one by one, and whole loads in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.schedule.virtual import Load, by_objective, fixed, serve

from treadle.schedule import Entry, Fifo, ObjectiveBatch
from treadle.schedule.batching import Others


def rule_of(
    *,
    rate: float = 0.0,
    until: float = 0.0,
    delay: float = 0.0,
    patience: float | None = None,
    most: int = 8,
) -> ObjectiveBatch:
    """A batch takes 1 s and 1 s for each row; 10 s are promised."""
    rule = ObjectiveBatch(
        10.0,
        lambda: most,
        lambda rows: 1.0 + rows,
        lambda: 1.0,
        max_delay_seconds=delay,
        patience=None if patience is None else lambda: patience,
    )
    for number in range(int(rate * 10)):  # the rate is a mean over about a second
        rule.arrived(head(until - 10 + number / rate))
    return rule


def head(arrived: float = 0.0, due: float = 10.0, *, late: bool = False) -> Entry:
    return Entry(model="m", batch_key=None, arrived=arrived, due=due, late=late)


# waiting rows, now -> rows of the batch; None where the first request is given up
SIZES = [
    (1, 0.0, 1),
    (5, 0.0, 5),
    (50, 0.0, 8),  # the most
    (50, 3.0, 6),  # 1 + 6 s are left
    (50, 8.0, 1),
    (50, 8.1, None),
    (1, 9.0, None),
]


@pytest.mark.parametrize(("waiting", "now", "rows"), SIZES)
def test_the_largest_batch_that_answers_its_first_request_in_time(
    waiting: int, now: float, rows: int | None
) -> None:
    choice = rule_of().choose(head(), waiting, now)
    assert (None if choice.late else choice.max_rows) == rows
    assert choice.not_before <= now


def test_a_late_request_keeps_nobody_waiting_and_may_have_all_the_company() -> None:
    assert rule_of().choose(head(late=True), 50, 100.0).max_rows == 8
    others = Others(free_by=104.0)
    assert rule_of().choose(head(late=True), 50, 100.0, others).max_rows == 3
    assert not rule_of().choose(head(late=True), 50, 100.0, others).late


def test_a_batch_leaves_others_the_time_that_they_need() -> None:
    assert rule_of().choose(head(), 50, 0.0, Others(free_by=4.0)).max_rows == 3
    assert rule_of().choose(head(), 50, 0.0, Others(free_by=-1.0)).max_rows == 1


def test_unless_such_batches_could_not_keep_up() -> None:
    fast = rule_of(rate=0.9)  # batches of 4 manage 0.8 rows/s, those of 8 manage 0.89
    assert fast.choose(head(), 50, 0.0, Others(free_by=4.0)).max_rows == 8


def test_one_request_is_given_up_where_small_batches_would_make_all_others_late() -> None:
    assert not rule_of(rate=0.3, until=7.0).choose(head(), 50, 7.0).late
    fast = rule_of(rate=0.9, until=7.0)
    assert fast.choose(head(), 50, 7.0).late
    assert not fast.choose(head(), 2, 7.0).late  # nobody else waits


def test_no_more_is_needed_than_the_smallest_batch_that_keeps_up() -> None:
    fast = rule_of(rate=0.9, most=16)  # batches of 9 manage as much, those of 8 only 0.89
    choice = fast.choose(head(), 50, 0.0)  # 1 + 9 s are left
    assert (choice.late, choice.max_rows) == (False, 9)


# delay, patience, waiting rows -> when it starts: company of one more row takes 1 s longer
WAITS = [
    (0.0, None, 1, 0.0),
    (2.0, None, 1, 2.0),
    (60.0, None, 1, 7.0),  # as far as its objective allows
    (0.0, 8.0, 1, 5.0),
    (0.0, 8.0, 3, 3.0),
    (0.0, 60.0, 1, 7.0),
    (60.0, 60.0, 8, 0.0),  # full
]


@pytest.mark.parametrize(("delay", "patience", "waiting", "start"), WAITS)
def test_how_long_it_waits_for_company(
    delay: float, patience: float | None, waiting: int, start: float
) -> None:
    choice = rule_of(delay=delay, patience=patience).choose(head(), waiting, 0.0)
    assert max(0.0, choice.not_before) == start


def test_nothing_is_known_of_a_model_that_has_not_run() -> None:
    rule = ObjectiveBatch(10.0, lambda: 8, lambda rows: None, lambda: 1.0)
    assert rule.choose(head(), 50, 9.9).max_rows == 8
    assert rule.latest_start(head(), 5, 0.0) == math.inf


VISION = Load(rate=0, first_seconds=0.002, row_seconds=0.00015, objective_seconds=0.05)
LANGUAGE = Load(rate=0, first_seconds=0.004, row_seconds=0.001, objective_seconds=0.05)


def loads(rate: float, *, vision: float = 0.05, language: float = 0.05) -> dict[str, Load]:
    """Two models of different weight, eight requests of the light for one of the heavy."""
    return {
        "vision": replace(VISION, rate=rate, objective_seconds=vision),
        "language": replace(LANGUAGE, rate=rate / 8, objective_seconds=language),
    }


def test_nothing_is_late_where_the_device_can_do_it() -> None:
    for found in serve(loads(2400), by_objective, seconds=10).values():
        assert found.late(0.05) <= 0.01


def test_more_than_the_device_can_do_is_late_only_by_what_is_too_much() -> None:
    load = {"vision": replace(VISION, rate=7000)}  # it can do 5,500
    assert serve(load, fixed, seconds=10, policy=Fifo())["vision"].late(0.05) > 0.9
    assert serve(load, by_objective, seconds=10)["vision"].late(0.05) < 0.25


def test_a_burst_makes_late_what_comes_in_it_and_little_more() -> None:
    load = {"vision": replace(VISION, rate=3000, burst=True)}
    first_come = serve(load, fixed, seconds=20, policy=Fifo())["vision"].late(0.05)
    assert serve(load, by_objective, seconds=20)["vision"].late(0.05) < 0.5 * first_come


def test_a_short_objective_is_kept_beside_a_long_one_and_its_large_batches() -> None:
    both = loads(1850, vision=0.02, language=0.1)
    first_come = serve(both, fixed, seconds=20, policy=Fifo())
    found = serve(both, by_objective, seconds=20)
    assert first_come["vision"].late(0.02) > 0.01
    assert found["vision"].late(0.02) <= 0.01
    assert found["language"].late(0.1) <= 0.01


def test_a_model_that_becomes_ten_times_slower_gets_smaller_batches_and_is_in_time_again() -> None:
    load = {"vision": replace(VISION, rate=40, slower_from=5.0)}
    found = serve(load, by_objective, seconds=15)["vision"]
    assert found.late(0.05, after=6.0) <= 0.02


@pytest.mark.parametrize("burst", [False, True])
@pytest.mark.parametrize("rate", [300, 1000])
def test_all_of_the_objective_is_used_where_that_is_wanted(rate: float, *, burst: bool) -> None:
    load = replace(VISION, rate=rate, objective_seconds=0.12, max_rows=256, burst=burst)
    found = serve({"m": load}, lambda one: by_objective(one, whole=True), seconds=60)["m"]
    assert 0.95 * 0.12 <= found.p99(after=20.0) <= 0.12
    alone = serve({"m": load}, by_objective, seconds=5)["m"]
    assert sum(found.rows) / len(found.rows) > 5 * sum(alone.rows) / len(alone.rows)
