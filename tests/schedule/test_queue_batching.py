"""Who runs with whom, and who waits for company."""

from __future__ import annotations

import pytest

from treadle.schedule import Entry, Fifo, FixedBatch

from .line import BACKGROUND, CRITICAL, NORMAL, Line, Wait

# what is told, most rows in a batch, the waiting requests, the batches
BATCHES = [
    ("a batch of one", 1, [Wait("a"), Wait("b")], ["a", "b"]),
    ("as many as fit", 3, [Wait(n) for n in "abcd"], ["a b c", "d"]),
    (
        "most urgent first inside a batch",
        4,
        [Wait("late", due=9), Wait("soon", due=1), Wait("mid", due=5)],
        ["soon mid late"],
    ),
    (
        "only equal keys share a batch",
        4,
        [Wait("a1", due=1, key="1"), Wait("b1", due=2, key="2"), Wait("a2", due=3, key="1")],
        ["a1 a2", "b1"],
    ),
    (
        "only one model",
        4,
        [Wait("x", due=1, model="x"), Wait("y", due=2, model="y"), Wait("x2", due=3, model="x")],
        ["x x2", "y"],
    ),
    (
        "only one class",
        4,
        [Wait("n", NORMAL, due=1), Wait("c", CRITICAL, due=9), Wait("b", BACKGROUND, due=1)],
        ["c", "n", "b"],
    ),
    ("rows count, not requests", 4, [Wait("a", rows=3), Wait("b"), Wait("c")], ["a b", "c"]),
    ("exactly full", 4, [Wait("a", rows=2), Wait("b", rows=2)], ["a b"]),
    (
        "one that does not fit ends the batch: nobody behind it slips past",
        4,
        [Wait("a", rows=3), Wait("b", rows=2), Wait("c", rows=1)],
        ["a", "b c"],
    ),
    (
        "one that is larger than a whole batch runs by itself",
        4,
        [Wait("a", rows=1), Wait("huge", rows=9), Wait("b", rows=1)],
        ["a", "huge", "b"],
    ),
]


@pytest.mark.parametrize(
    ("max_rows", "waits", "batches"), [c[1:] for c in BATCHES], ids=[c[0] for c in BATCHES]
)
def test_batches(max_rows: int, waits: list[Wait], batches: list[str]) -> None:
    assert Line(*waits, max_rows=max_rows).drain() == batches


def test_fifo_batches_across_classes() -> None:
    line = Line(
        Wait("b", BACKGROUND, arrived=0),
        Wait("c", CRITICAL, arrived=1),
        Wait("n", NORMAL, arrived=2),
        policy=Fifo(),
        max_rows=2,
    )
    assert line.drain(now=2) == ["b c", "n"]


def test_a_removed_request_leaves_its_place_in_the_batch_to_another() -> None:
    line = Line(*(Wait(n) for n in "abcd"), max_rows=3)
    line.remove("b")
    assert line.drain() == ["a c d"]


def test_the_first_waits_for_company_until_its_delay_is_over() -> None:
    line = Line(Wait("a", arrived=10), max_rows=4, max_delay_seconds=2)
    line.stays_idle(10)
    line.stays_idle(11.999)
    assert line.queue.next_event(10) == 12
    assert line.take(12) == "a"


def test_company_that_arrives_meanwhile_comes_along() -> None:
    line = Line(Wait("a", arrived=10), max_rows=4, max_delay_seconds=2)
    line.stays_idle(10)
    line.push(Wait("b", arrived=11.9))
    assert line.take(11.9) is None
    assert line.take(12) == "a b"


def test_a_full_batch_does_not_wait() -> None:
    line = Line(Wait("a", arrived=10), max_rows=3, max_delay_seconds=2)
    line.push(Wait("b", arrived=10, rows=2))
    assert line.queue.next_event(10) == float("inf")
    assert line.take(10) == "a b"


def test_other_shapes_are_no_company() -> None:
    line = Line(
        Wait("a", due=1, arrived=10, key="1"),
        *(Wait(f"b{n}", due=2, arrived=10, key="2") for n in range(5)),
        max_rows=2,
        max_delay_seconds=2,
    )
    assert line.take(10) != "a"
    assert line.take(12) == "a"


def test_a_head_that_waits_for_company_lets_other_models_start() -> None:
    line = Line(
        Wait("patient", CRITICAL, due=1, model="x"),
        Wait("other", BACKGROUND, due=9, model="y"),
        rules={"x": FixedBatch(2, 5.0), "y": FixedBatch(1)},
    )
    assert line.take(0) == "other"
    line.stays_idle(1)
    assert line.queue.next_event(1) == 5
    assert line.take(5) == "patient"


def test_the_next_event_is_the_earliest_of_all_delays() -> None:
    line = Line(
        Wait("x", arrived=1, model="x"),
        Wait("y", arrived=2, model="y"),
        rules={"x": FixedBatch(2, 9.0), "y": FixedBatch(2, 3.0)},
    )
    assert line.queue.next_event(2) == 5
    assert line.take(5) == "y"
    assert line.queue.next_event(5) == 10


# max rows, max delay, arrival of the head, rows that wait, now -> not before
CHOICES = [
    (4, 2.0, 10.0, 1, 10.0, 12.0),
    (4, 2.0, 10.0, 3, 11.0, 12.0),
    (4, 2.0, 10.0, 4, 11.0, 11.0),
    (4, 2.0, 10.0, 9, 11.0, 11.0),
    (4, 2.0, 10.0, 1, 15.0, 12.0),
    (4, 0.0, 10.0, 1, 15.0, 10.0),
    (1, 2.0, 10.0, 1, 10.5, 10.5),
]


@pytest.mark.parametrize(
    ("max_rows", "delay", "arrived", "waiting_rows", "now", "not_before"), CHOICES
)
def test_fixed_batch(
    max_rows: int, delay: float, arrived: float, waiting_rows: int, now: float, not_before: float
) -> None:
    head = Entry(model="m", batch_key="k", arrived=arrived)
    choice = FixedBatch(max_rows, delay).choose(head, waiting_rows, now)
    assert (choice.max_rows, choice.not_before) == (max_rows, not_before)


def test_one_that_runs_again_by_itself_is_in_no_other_batch() -> None:
    """As after a batch that failed: a key of its own keeps a request apart."""
    line = Line(*(Wait(n, due=d) for n, d in (("a", 1), ("b", 2), ("c", 3))), max_rows=2)
    assert line.take() == "a b"
    for name in ("a", "b"):
        line.entries[name].batch_key = object()
        line.queue.push(line.entries[name])
    assert line.drain() == ["a", "b", "c"]
