"""Requests that can no longer be answered in time leave the queue."""

from __future__ import annotations

import math

import pytest

from .line import BACKGROUND, Line, Wait, nothing


def test_the_queue_names_the_next_expiry_and_keeps_the_request_until_then() -> None:
    line = Line(Wait("a", latest_start=5))
    assert line.queue.next_event(1) == 5
    assert line.expire(4.999) == []
    assert line.expire(5.001) == ["a"]
    assert line.queue.next_event(6) == math.inf


def test_expired_requests_come_out_by_their_latest_start_whatever_their_place() -> None:
    line = Line(
        Wait("c", due=1, latest_start=3),
        Wait("a", BACKGROUND, due=9, latest_start=1, model="x"),
        Wait("never"),
        Wait("b", due=5, latest_start=2),
        Wait("later", due=2, latest_start=50),
    )
    assert line.expire(10) == ["a", "b", "c"]
    assert line.waiting == {"never", "later"}
    assert line.drain(10) == ["later", "never"]


def test_requests_that_were_taken_or_removed_do_not_expire() -> None:
    line = Line(*(Wait(n, due=d, latest_start=5) for d, n in enumerate("abc")))
    assert line.take() == "a"
    line.remove("b")
    assert line.expire(10) == ["c"]
    assert line.expire(10) == []


def test_what_has_expired_leaves_room_in_the_batch() -> None:
    line = Line(
        Wait("a", due=1, latest_start=9),
        Wait("gone", due=2, latest_start=1),
        Wait("b", due=3, latest_start=9),
        max_rows=2,
    )
    assert line.expire(2) == ["gone"]
    assert line.take(2) == "a b"


def test_expiry_needs_no_model_that_is_ready() -> None:
    line = Line(Wait("a", latest_start=5))
    line.stays_idle(4, ready=nothing)
    assert line.expire(6) == ["a"]


@pytest.mark.parametrize("latest_start", [0.3, 1000.1 + 0.3, 5.0])
def test_at_its_next_event_a_request_has_expired_or_another_event_follows(
    latest_start: float,
) -> None:
    """A clock that jumps from event to event must never stand still."""
    line = Line(Wait("a", latest_start=latest_start))
    now = line.queue.next_event(0)
    assert line.expire(now) == ["a"] or line.queue.next_event(now) > now


def test_the_next_event_is_the_earlier_of_delay_and_expiry() -> None:
    for latest_start, event in ((3.0, 3.0), (9.0, 7.0)):
        line = Line(Wait("a", latest_start=latest_start), max_rows=2, max_delay_seconds=7)
        assert line.queue.next_event(0) == event
