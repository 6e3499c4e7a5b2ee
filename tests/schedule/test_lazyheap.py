"""The heap below the queue: order, leaving from the middle, and bounded memory."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from treadle.schedule import Entry, FixedBatch, HighestPriorityFirst, RequestQueue
from treadle.schedule.lazyheap import LazyHeap
from treadle.types import Priority

KEPT = 10


class Counted:
    """A batch key that knows how many of its kind are alive, and so how many entries are."""

    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def entry(key: object = "k") -> Entry:
    return Entry(model="m", batch_key=key, arrived=0.0, waiting=True)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_what_waits_comes_out_by_key_and_equal_keys_in_order(rows: list[tuple[int, bool]]) -> None:
    heap, entries = LazyHeap(), [entry() for _ in rows]
    for (key, _), pushed in zip(rows, entries, strict=True):
        heap.push(key, pushed)
    for (_, leaves), pushed in zip(rows, entries, strict=True):
        pushed.waiting = not leaves
    expected = sorted(
        ((key, n) for n, (key, leaves) in enumerate(rows) if not leaves),
    )
    came_out = []
    while first := heap.peek():
        came_out.append((first[0], next(n for n, e in enumerate(entries) if e is first[1])))
        first[1].waiting = False
    assert came_out == expected


def test_sweeping_keeps_the_order() -> None:
    heap, order, expected = LazyHeap(), random.Random(3), []
    for _ in range(2000):
        key, pushed = order.random(), entry()
        heap.push(key, pushed)
        if order.random() < 0.7:
            pushed.waiting = False
        else:
            expected.append(key)
    keys = []
    while first := heap.peek():
        keys.append(first[0])
        first[1].waiting = False
    assert keys == sorted(expected)


def test_looking_takes_nothing_out() -> None:
    heap, waiting = LazyHeap(), entry()
    heap.push(1.0, waiting)
    assert [heap.peek() for _ in range(5)] == [(1.0, waiting)] * 5


def test_an_empty_heap_has_no_first() -> None:
    assert LazyHeap().peek() is None


def test_a_million_pushes_leave_memory_for_what_waits_only() -> None:
    heap, kept, most = LazyHeap(), [], 0
    order = random.Random(1)
    for number in range(1_000_000):
        pushed = entry(Counted())
        heap.push(order.random(), pushed)
        if number % 100_000 == 0:
            kept.append(pushed)
        else:
            pushed.waiting = False
        most = max(most, Counted.alive)
    del pushed
    assert len(kept) == KEPT
    assert most < 200, "what left was not swept out"
    for waiting in kept:
        waiting.waiting = False
    kept.clear()
    del waiting
    assert heap.peek() is None
    assert Counted.alive == 0


def test_a_queue_forgets_requests_that_were_taken_removed_or_expired() -> None:
    queue = RequestQueue(
        HighestPriorityFirst(), {"m": FixedBatch(4)}, age_limit_seconds=1e9, aged_duty=0.1
    )
    order, most = random.Random(2), 0
    for number in range(20_000):
        waiting = Entry(
            model="m",
            batch_key=Counted(),
            arrived=float(number),
            priority=order.choice(list(Priority)),
            due=order.random(),
            latest_start=number + 0.5,
        )
        queue.push(waiting)
        match number % 3:
            case 0:
                queue.remove(waiting)
            case 1:
                queue.take(number, ready=lambda _: True, fits=lambda _: True)
            case _:
                queue.expire(number + 1.0)
        most = max(most, Counted.alive)
    del waiting
    queue.check_integrity()
    assert queue.waiting("m") == 0
    assert most < 1000, "what left was not swept out"
