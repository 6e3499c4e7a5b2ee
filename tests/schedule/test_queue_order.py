"""Who goes first: tables of waiting requests and the order in which they start."""

from __future__ import annotations

import pytest

from treadle.schedule import POLICIES, Fifo, FixedBatch, HighestPriorityFirst

from .line import BACKGROUND, CRITICAL, NORMAL, Line, Wait

# what is told, the waiting requests in order of arrival, the order in which they start
BY_PRIORITY = [
    ("nothing waits", [], []),
    ("one waits", [Wait("a")], ["a"]),
    (
        "class goes before due time",
        [
            Wait("background", BACKGROUND, due=1),
            Wait("normal", NORMAL, due=2),
            Wait("critical", CRITICAL, due=3),
        ],
        ["critical", "normal", "background"],
    ),
    (
        "earliest due first within a class, whatever the order of arrival",
        [Wait("late", due=9, arrived=0), Wait("soon", due=3, arrived=1), Wait("mid", due=5)],
        ["soon", "mid", "late"],
    ),
    (
        "equal due times: first come, first served",
        [Wait("a", due=5), Wait("b", due=5), Wait("c", due=5)],
        ["a", "b", "c"],
    ),
    (
        "no due time comes after any due time",
        [Wait("whenever"), Wait("at all", due=1e9)],
        ["at all", "whenever"],
    ),
    (
        "one order over all models",
        [
            Wait("x9", due=9, model="x"),
            Wait("y1", due=1, model="y"),
            Wait("x3", due=3, model="x"),
            Wait("y6", due=6, model="y"),
        ],
        ["y1", "x3", "y6", "x9"],
    ),
    (
        "class goes before due time over all models, too",
        [
            Wait("x", BACKGROUND, due=1, model="x"),
            Wait("y", NORMAL, due=2, model="y"),
            Wait("z", CRITICAL, due=9, model="z"),
            Wait("x2", CRITICAL, due=3, model="x"),
        ],
        ["x2", "z", "y", "x"],
    ),
    (
        "one model with all three classes",
        [
            Wait("b1", BACKGROUND, due=1),
            Wait("n2", NORMAL, due=2),
            Wait("c4", CRITICAL, due=4),
            Wait("n1", NORMAL, due=1),
            Wait("c3", CRITICAL, due=3),
        ],
        ["c3", "c4", "n1", "n2", "b1"],
    ),
    (
        "what may share a batch does not decide the order",
        [Wait("a", due=4, key="1"), Wait("b", due=3, key="2"), Wait("c", due=2, key="1")],
        ["c", "b", "a"],
    ),
]

BY_ARRIVAL = [
    (
        "first come, first served, whatever the class and due time",
        [
            Wait("third", CRITICAL, due=1, arrived=3),
            Wait("first", BACKGROUND, due=9, arrived=1),
            Wait("second", NORMAL, due=5, arrived=2),
        ],
        ["first", "second", "third"],
    ),
    (
        "over all models",
        [
            Wait("x2", arrived=2, model="x"),
            Wait("y1", arrived=1, model="y"),
            Wait("x0", CRITICAL, arrived=0, model="x"),
            Wait("y3", CRITICAL, arrived=3, model="y"),
        ],
        ["x0", "y1", "x2", "y3"],
    ),
    (
        "equal arrivals keep the order in which they were pushed",
        [Wait("a", BACKGROUND), Wait("b", CRITICAL), Wait("c", NORMAL)],
        ["a", "b", "c"],
    ),
]


@pytest.mark.parametrize(
    ("waits", "order"), [c[1:] for c in BY_PRIORITY], ids=[c[0] for c in BY_PRIORITY]
)
def test_by_priority(waits: list[Wait], order: list[str]) -> None:
    assert Line(*waits, policy=HighestPriorityFirst()).drain() == order


@pytest.mark.parametrize(
    ("waits", "order"), [c[1:] for c in BY_ARRIVAL], ids=[c[0] for c in BY_ARRIVAL]
)
def test_by_arrival(waits: list[Wait], order: list[str]) -> None:
    assert Line(*waits, policy=Fifo()).drain() == order


def test_a_model_that_is_not_ready_is_passed_over() -> None:
    line = Line(
        Wait("x", CRITICAL, due=1, model="x"),
        Wait("y", BACKGROUND, due=9, model="y"),
    )
    assert line.take(ready=lambda model: model != "x") == "y"
    line.stays_idle(0, ready=lambda model: model != "x")
    assert line.waiting == {"x"}
    assert line.take() == "x"


def test_within_a_class_a_ready_model_goes_before_one_that_is_not() -> None:
    line = Line(
        Wait("x", due=1, model="x"),
        Wait("y", due=2, model="y"),
        Wait("z", due=3, model="z"),
    )
    assert line.take(ready=lambda model: model == "z") == "z"
    assert line.drain() == ["x", "y"]


def test_requests_pushed_between_two_batches_find_their_place() -> None:
    line = Line(Wait("a", due=5), Wait("b", due=7))
    assert line.take() == "a"
    line.push(Wait("urgent", CRITICAL, due=99))
    line.push(Wait("c", due=6))
    assert line.drain() == ["urgent", "c", "b"]


@pytest.mark.parametrize("name", ["first", "middle", "last"])
def test_a_removed_request_is_never_taken_and_the_others_keep_their_order(name: str) -> None:
    line = Line(Wait("first", due=1), Wait("middle", due=2), Wait("last", due=3))
    assert line.remove(name) is True
    assert line.drain() == [other for other in ("first", "middle", "last") if other != name]


def test_removing_is_possible_once_and_only_while_waiting() -> None:
    line = Line(Wait("removed", due=1), Wait("taken", due=2), Wait("expired", latest_start=1))
    assert line.remove("removed") is True
    assert line.remove("removed") is False
    assert line.take() == "taken"
    assert line.remove("taken") is False
    assert line.expire(2) == ["expired"]
    assert line.remove("expired") is False
    assert line.waiting == set()


def test_waiting_counts_by_model_and_depths_by_model_and_class() -> None:
    line = Line(
        Wait("a", CRITICAL, model="x"),
        Wait("b", CRITICAL, model="x"),
        Wait("c", BACKGROUND, model="x"),
        Wait("d", NORMAL, model="y"),
    )
    assert [line.queue.waiting(model) for model in ("x", "y", "never seen")] == [3, 1, 0]
    line.take()
    line.remove("c")
    depths = {place: depth for place, depth in line.queue.depths().items() if depth}
    assert depths == {("x", CRITICAL): 1, ("y", NORMAL): 1}


def test_a_request_may_wait_again_after_it_was_taken() -> None:
    line = Line(Wait("a", due=1), Wait("b", due=2))
    assert line.take() == "a"
    line.queue.push(line.entries["a"])
    assert line.drain() == ["a", "b"]


def test_an_empty_queue_answers_nothing_and_knows_no_next_event() -> None:
    line = Line()
    line.stays_idle(0)
    assert line.expire(1e9) == []
    assert line.queue.next_event(0) == float("inf")


def test_policies_are_found_by_the_names_that_files_use() -> None:
    assert dict(POLICIES) == {"fifo": Fifo, "priority": HighestPriorityFirst}
    assert (Fifo.preempts, HighestPriorityFirst.preempts) == (False, True)


def test_each_model_goes_by_its_own_rule() -> None:
    line = Line(
        *(Wait(f"x{n}", due=n, model="x") for n in range(4)),
        *(Wait(f"y{n}", due=10 + n, model="y") for n in range(3)),
        rules={"x": FixedBatch(3), "y": FixedBatch(1)},
    )
    assert line.drain() == ["x0 x1 x2", "x3", "y0", "y1", "y2"]
