"""Nothing starves: who waited past the age limit is next, one at a time and within a duty."""

from __future__ import annotations

import math

import pytest

from treadle.schedule import Fifo, QueuePolicy
from treadle.types import Priority

from .line import BACKGROUND, CRITICAL, NORMAL, Line, Wait, nothing


def crowd(count: int = 3, arrived: float = 100.0) -> list[Wait]:
    """Critical requests that are always there first."""
    return [Wait(f"c{n}", CRITICAL, due=n, arrived=arrived, model="crowd") for n in range(count)]


def test_until_the_age_limit_the_order_holds() -> None:
    line = Line(Wait("old", BACKGROUND, arrived=91), *crowd(2), age_limit_seconds=10)
    assert line.drain(100) == ["c0", "c1", "old"]


def test_at_the_age_limit_a_request_is_next_whatever_else_waits() -> None:
    line = Line(Wait("old", BACKGROUND, arrived=90), *crowd(2), age_limit_seconds=10)
    assert line.drain(100) == ["old (aged)", "c0", "c1"]


@pytest.mark.parametrize("priority", [NORMAL, BACKGROUND])
def test_every_lower_class_ages(priority: Priority) -> None:
    line = Line(Wait("old", priority, arrived=0), *crowd(1), age_limit_seconds=10)
    assert line.take(100) == "old (aged)"


def test_the_oldest_goes_first_whatever_its_class_and_due_time() -> None:
    line = Line(
        Wait("younger", NORMAL, due=1, arrived=2),
        Wait("oldest", BACKGROUND, due=9, arrived=1, model="x"),
        *crowd(1),
        age_limit_seconds=10,
    )
    assert line.take(100) == "oldest (aged)"


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (None, [Wait("a", CRITICAL, due=2, arrived=0), Wait("b", CRITICAL, due=1, arrived=50)]),
        (Fifo(), [Wait("b", BACKGROUND, arrived=0), Wait("a", BACKGROUND, arrived=50)]),
    ],
)
def test_the_first_rank_does_not_age(policy: QueuePolicy | None, waits: list[Wait]) -> None:
    line = Line(*waits, policy=policy, age_limit_seconds=10)
    assert line.queue.next_event(60) == math.inf
    assert line.drain(100) == ["b", "a"]


def test_an_aged_batch_is_filled_with_its_like() -> None:
    line = Line(
        Wait("old", BACKGROUND, due=9, arrived=0),
        Wait("younger", BACKGROUND, due=1, arrived=99),
        Wait("other", BACKGROUND, due=2, arrived=99, key="other"),
        *crowd(1),
        max_rows=2,
        age_limit_seconds=10,
    )
    assert line.take(100) == "old younger (aged)"


def test_age_goes_before_the_wait_for_company() -> None:
    line = Line(
        Wait("old", BACKGROUND, arrived=0), max_rows=2, max_delay_seconds=60, age_limit_seconds=10
    )
    line.stays_idle(9)
    assert line.queue.next_event(9) == 10
    assert line.take(10) == "old (aged)"


def test_an_old_request_waits_for_room_and_nothing_overtakes_it_meanwhile() -> None:
    line = Line(Wait("old", BACKGROUND, arrived=0), *crowd(2), age_limit_seconds=10)
    line.stays_idle(100, fits=lambda head: head.priority is CRITICAL)
    assert line.take(100) == "old (aged)"


def test_while_the_old_request_has_no_worker_the_order_holds() -> None:
    line = Line(Wait("old", BACKGROUND, arrived=0), *crowd(2), age_limit_seconds=10)
    assert line.take(100, ready=lambda model: model == "crowd") == "c0"
    assert line.take(100) == "old (aged)"


def test_old_requests_go_out_of_turn_one_at_a_time() -> None:
    line = Line(
        *(Wait(f"old{n}", BACKGROUND, arrived=n) for n in range(3)), *crowd(2), age_limit_seconds=10
    )
    assert line.take(100) == "old0 (aged)"
    assert line.take(100) == "c0"
    assert line.take(1e6) == "c1"
    line.queue.aged_finished(now=1e6, seconds=1)
    line.push(Wait("c9", CRITICAL, arrived=1e6, model="crowd"))
    assert line.take(1e6 + 1) == "c9"


# duty, run time of the aged batch -> pause until the next one
DUTIES = [(0.1, 1.0, 9.0), (0.1, 0.5, 4.5), (0.5, 2.0, 2.0), (0.25, 1.0, 3.0), (1.0, 7.0, 0.0)]


@pytest.mark.parametrize(("duty", "seconds", "pause"), DUTIES)
def test_turns_out_of_order_take_their_duty_of_the_time(
    duty: float, seconds: float, pause: float
) -> None:
    line = Line(
        *(Wait(f"old{n}", BACKGROUND, arrived=n) for n in range(2)),
        *crowd(9),
        age_limit_seconds=10,
        aged_duty=duty,
    )
    assert line.take(100) == "old0 (aged)"
    line.queue.aged_finished(now=100 + seconds, seconds=seconds)
    allowed = 100 + seconds + pause
    if pause:
        assert line.queue.next_event(100 + seconds) == pytest.approx(allowed)
        assert line.take(allowed - 0.01) == "c0"
    assert line.take(allowed + 0.01) == "old1 (aged)"


def test_old_requests_still_run_in_turn_while_they_may_not_run_out_of_turn() -> None:
    line = Line(
        *(Wait(f"old{n}", BACKGROUND, due=n, arrived=n) for n in range(3)), age_limit_seconds=10
    )
    assert line.drain(100) == ["old0 (aged)", "old1", "old2"]


def test_a_request_that_was_removed_or_has_expired_does_not_age() -> None:
    line = Line(
        Wait("removed", BACKGROUND, arrived=0),
        Wait("expired", BACKGROUND, arrived=1, latest_start=50),
        Wait("old", BACKGROUND, arrived=2),
        *crowd(1),
        age_limit_seconds=10,
    )
    line.remove("removed")
    line.expire(60)
    assert line.take(100) == "old (aged)"


def test_without_an_age_limit_nothing_ages() -> None:
    line = Line(Wait("old", BACKGROUND, arrived=0), *crowd(2))
    assert line.queue.next_event(0) == math.inf
    assert line.drain(1e9) == ["c0", "c1", "old"]


def test_an_old_request_of_a_model_without_worker_does_not_hold_up_other_old_ones() -> None:
    """One broken model must not take the guarantee from all others."""
    line = Line(
        Wait("of broken", BACKGROUND, arrived=0, model="broken"),
        Wait("old", BACKGROUND, arrived=1),
        *crowd(2),
        age_limit_seconds=10,
    )
    assert line.take(100, ready=lambda model: model != "broken") == "old (aged)"


def test_the_next_event_looks_past_an_age_limit_that_has_already_been_reached() -> None:
    """Else an old request that cannot start hides the expiry of every other."""
    line = Line(
        Wait("old", BACKGROUND, arrived=0, model="broken"),
        Wait("tight", NORMAL, arrived=95, latest_start=105, model="broken"),
        age_limit_seconds=10,
    )
    line.stays_idle(100, ready=nothing)
    assert line.queue.next_event(100) == 105


@pytest.mark.parametrize("arrived", [0.0, 0.1, 1000.1, 86400.7, 123456.789])
@pytest.mark.parametrize("age_limit", [0.3, 1.1, 10.0])
def test_at_the_moment_that_the_queue_names_the_old_request_starts(
    arrived: float, age_limit: float
) -> None:
    """No rounding lies between the event that is announced and the one that happens."""
    line = Line(
        Wait("old", BACKGROUND, arrived=arrived),
        max_rows=2,
        max_delay_seconds=60,
        age_limit_seconds=age_limit,
    )
    assert line.take(line.queue.next_event(arrived)) == "old (aged)"


def test_an_old_request_that_runs_again_by_itself_is_in_no_other_batch() -> None:
    """It left its batch from the middle of the line, and must not be found there again."""
    line = Line(
        Wait("old", BACKGROUND, due=9, arrived=0),
        *(Wait(f"b{n}", BACKGROUND, due=n, arrived=99) for n in range(4)),
        max_rows=3,
        age_limit_seconds=10,
    )
    assert line.take(100) == "old b0 b1 (aged)"
    for name in ("old", "b0", "b1"):
        line.entries[name].batch_key = object()
        line.queue.push(line.entries[name])
    assert line.drain(100) == ["b0", "b1", "b2 b3", "old"]
