"""Which queued job starts now, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.schedule.place import Kind, Need, Room, best_fit, cannot_ever
from treadle.types import Plan, Priority

GIB = 1 << 30


def gpu(uuid: str, total: float, free: float | None = None, share: float = 1.0) -> Room:
    memory = int(total * GIB)
    return Room(uuid, True, memory, 1.0, memory if free is None else int(free * GIB), share)


def cpu(cores: float = 8, gib: float = 64) -> Room:
    memory = int(gib * GIB)
    return Room("cpu", False, memory, cores, memory, cores)


def need(
    gib: float, gpus: int = 1, share: float = 0.0, priority: Priority = Priority.BACKGROUND
) -> Need:
    return Need(priority, int(gib * GIB), share, gpus)


def plan(
    rooms: list[Room],
    *lines: tuple[Need, list[int]],
    most: int = 100,
    waited: Mapping[int, float] = MappingProxyType({}),
) -> Plan:
    """What starts now.

    Args:
        rooms: The devices.
        lines: Each need, with the jobs that have it.
        most: That may start.
        waited: How long the first of a line has, by its place; devices are reserved after 60 s.
    """
    kinds = [
        Kind(number, wanted, jobs, waited.get(number, 0.0))
        for number, (wanted, jobs) in enumerate(lines)
    ]
    return best_fit(kinds, rooms, most, 60.0)


def places(found: Plan) -> dict[int, tuple[str, ...]]:
    return {action.task: action.devices for action in found.actions}


def test_a_job_goes_where_least_is_left_over() -> None:
    rooms = [gpu("large", 80), gpu("small", 24), gpu("middle", 40)]
    assert places(plan(rooms, (need(20), [1]))) == {1: ("small",)}
    assert places(plan(rooms, (need(30), [1]))) == {1: ("middle",)}


def test_jobs_of_a_kind_fill_the_devices_one_after_another() -> None:
    found = plan([gpu("a", 24), gpu("b", 80)], (need(20), [1, 2, 3, 4, 5, 6]))
    assert places(found) == {1: ("a",), 2: ("b",), 3: ("b",), 4: ("b",), 5: ("b",)}
    assert found.waiting == {0: "needs 20 GiB, largest free slot 4 GiB"}


def test_equal_devices_are_taken_by_name() -> None:
    assert places(plan([gpu("b", 80), gpu("a", 80)], (need(20), [1]))) == {1: ("a",)}


def test_the_urgent_goes_first_and_then_the_oldest() -> None:
    found = plan(
        [gpu("a", 80)],
        (need(30), [1, 4]),
        (need(31, priority=Priority.NORMAL), [3]),
        (need(32, priority=Priority.CRITICAL), [5]),
        (need(10), [2]),
    )
    assert [action.task for action in found.actions] == [5, 3, 2]


def test_a_job_that_does_not_fit_lets_smaller_ones_past() -> None:
    found = plan([gpu("a", 80, free=30)], (need(40), [1]), (need(20), [2]))
    assert places(found) == {2: ("a",)}
    assert found.waiting == {0: "needs 40 GiB, largest free slot 30 GiB"}


def test_a_gang_gets_all_of_its_devices_or_none() -> None:
    rooms = [gpu("a", 80), gpu("b", 80), gpu("c", 80, free=10)]
    assert places(plan(rooms, (need(40, gpus=2), [1]))) == {1: ("a", "b")}
    found = plan(rooms, (need(40, gpus=3), [1]), (need(40), [2]))
    assert places(found) == {2: ("a",)}
    assert found.waiting == {0: "needs 3 GPUs with room, 2 have it"}


def test_no_more_start_than_may_at_once() -> None:
    found = plan([cpu()], (need(0, gpus=0, share=1), [1, 2, 3]), most=2)
    assert list(places(found)) == [1, 2]
    assert found.waiting == {0: "others are being started"}
    assert plan([cpu()], (need(0, gpus=0), [1]), most=0).actions == ()


def test_a_closed_device_takes_nothing() -> None:
    closed = replace(gpu("a", 80), closed="it is hung")
    found = plan([closed], (need(1), [1]))
    assert (found.actions, found.waiting) == ((), {0: "it is hung"})
    assert places(plan([closed, gpu("b", 80)], (need(1), [1]))) == {1: ("b",)}


def test_a_job_of_another_user_goes_where_no_mps_daemon_of_the_nodes_is() -> None:
    parallel, guest = replace(gpu("a", 24), single=True), replace(need(20), guest=True)
    assert places(plan([parallel, gpu("b", 80)], (guest, [1]))) == {1: ("b",)}
    found = plan([parallel], (guest, [1]), (need(20), [2]))
    assert places(found) == {2: ("a",)}
    assert found.waiting == {0: "is not of the node's user: needs a GPU in turns mode"}


def test_cores_are_taken_as_well_as_memory() -> None:
    found = plan([cpu(cores=3)], (need(1, gpus=0, share=2), [1, 2]), (need(1, 0, 1), [3]))
    assert places(found) == {1: ("cpu",), 3: ("cpu",)}


def test_tenths_add_up_to_a_whole() -> None:
    found = plan([gpu("a", 80)], (need(1, share=0.1), list(range(1, 12))))
    assert len(found.actions) == 10


# Devices that are kept free.

LONG = MappingProxyType({0: 60.0})


def test_a_gang_that_has_waited_for_long_has_devices_kept_free() -> None:
    rooms = [gpu("a", 80, free=0), gpu("b", 80, free=60), gpu("c", 80, free=10)]
    lines = [(need(80, gpus=2), [1]), (need(10), [2, 3, 4])]
    assert places(plan(rooms, *lines)) == {2: ("c",), 3: ("b",), 4: ("b",)}
    found = plan(rooms, *lines, waited=LONG)
    assert places(found) == {}
    assert found.waiting == {
        0: "needs 80 GiB, largest free slot 60 GiB; 2 GPUs are kept free for it",
        1: "a GPU is kept free for job 1",
    }


def test_others_go_on_where_they_are_not_in_its_way() -> None:
    rooms = [gpu("a", 80, free=0), gpu("b", 80, free=60), gpu("c", 80, free=20), gpu("d", 40)]
    found = plan(rooms, (need(80, gpus=2), [1]), (need(20), [2, 3, 4]), waited=LONG)
    assert places(found) == {2: ("d",), 3: ("d",)}
    assert found.waiting[1] == "a GPU is kept free for job 1"


def test_the_more_urgent_go_first_whatever_is_kept_free() -> None:
    rooms = [gpu("a", 80, free=60), gpu("b", 80, free=70)]
    urgent = need(50, priority=Priority.CRITICAL)
    found = plan(rooms, (need(80, gpus=2), [1]), (urgent, [2]), waited=LONG)
    assert places(found) == {2: ("a",)}


def test_the_cores_of_the_cpu_are_kept_free_as_well() -> None:
    room = replace(cpu(cores=8), free_share=3)
    found = plan([room, gpu("a", 80)], (need(0, 0, 8), [1]), (need(0, 0, 1), [2]), (need(9), [3]),
                 waited=LONG)  # fmt: skip
    assert places(found) == {3: ("a",)}
    assert found.waiting == {
        0: "needs 8 cores, most that is free 3; the CPU is kept free for it",
        1: "the CPU is kept free for job 1",
    }


@pytest.mark.parametrize(
    "lasting", [{"lasting_memory_bytes": GIB}, {"lasting_share": 0.5}, {"closed": "it is hung"}]
)
def test_nothing_is_kept_free_where_it_would_be_in_vain(lasting: dict[str, Any]) -> None:
    rooms = [gpu("a", 80, free=60), replace(gpu("b", 80, free=60), **lasting)]
    lines = [(need(80, gpus=2, share=1), [1]), (need(50), [2])]
    found = plan(rooms, *lines, waited=LONG)
    assert list(places(found)) == [2]
    assert "kept free" not in found.waiting[0]


def test_two_that_have_waited_have_devices_of_their_own_if_there_are_enough() -> None:
    rooms = [gpu(name, 80, free=60) for name in "abcd"]
    large, other = need(80, gpus=2), need(79, gpus=2)
    found = plan(rooms, (large, [1]), (other, [2]), (need(1), [3]), waited={0: 60, 1: 60})
    assert places(found) == {}
    assert found.waiting[2] == "a GPU is kept free for job 1"
    found = plan(rooms[:3], (large, [1]), (other, [2]), (need(1), [3]), waited={0: 60, 1: 60})
    assert places(found) == {3: ("c",)}


def test_a_gang_gets_its_turn_though_small_jobs_never_end_to_come() -> None:
    """Each round the oldest of the small jobs ends, and another one comes."""
    total = dict.fromkeys("abc", 4)
    running: list[tuple[int, tuple[str, ...]]]
    running = [(number, (name,)) for number, name in enumerate("abcabcabcabc", start=2)]
    queue, number, reserved = [14, 15], 16, set()
    for round_ in range(40):
        free = dict(total)
        for _, where in running:
            free[where[0]] -= 1
        rooms = [gpu(name, 4, free=left) for name, left in free.items()]
        waited = {0: 60.0 if round_ > 10 else 0.0}
        found = plan(rooms, (need(4, gpus=2), [1]), (need(1), queue), waited=waited)
        placed = places(found)
        if 1 in placed:
            break
        reserved.add("kept free for it" in found.waiting[0])
        running += placed.items()
        queue = [job for job in queue if job not in placed]
        running.pop(0)
        while len(queue) < 15:
            queue.append(number)
            number += 1
    else:
        raise AssertionError("it never started")
    assert (round_ > 10, reserved) == (True, {False, True})


# Why somebody waits.


@pytest.mark.parametrize(
    ("wanted", "rooms", "reason"),
    [
        (need(40), [gpu("a", 80, free=24)], "needs 40 GiB, largest free slot 24 GiB"),
        (need(40), [gpu("a", 80, free=-3)], "needs 40 GiB, largest free slot 0 GiB"),
        (need(100), [gpu("a", 80)], "needs 100 GiB, the largest device here has 80 GiB"),
        (need(2000), [gpu("a", 80)], "needs 2000 GiB, the largest device here has 80 GiB"),
        (need(1, gpus=2), [gpu("a", 80)], "needs 2 GPUs, there are 1"),
        (need(1), [cpu()], "needs 1 GPU, there are none here"),
        (need(1, gpus=2), [cpu()], "needs 2 GPUs, there are none here"),
        (
            need(70, gpus=2),
            [gpu("a", 80), gpu("b", 24)],
            "needs 2 GPUs that large, there are 1",
        ),
        (
            need(1, share=0.5),
            [gpu("a", 80, share=0.25)],
            "needs 0.5 of a GPU, most that is free 0.25",
        ),
        (need(1, share=1.5), [gpu("a", 80)], "needs 1.5 of a GPU, GPU has 1"),
        (need(1, gpus=0, share=9), [cpu(cores=8)], "needs 9 cores, the CPU has 8"),
        (
            need(40, share=0.5),
            [gpu("a", 80, share=0.25), gpu("b", 80, free=20)],
            "needs 0.5 of a GPU, most that is free where there is memory for it 0.25",
        ),
    ],
)
def test_who_waits_is_told_why(wanted: Need, rooms: list[Room], reason: str) -> None:
    found = plan(rooms, (wanted, [1]))
    assert (found.actions, found.waiting) == ((), {0: reason})


def test_what_may_fit_one_day_is_not_refused() -> None:
    assert cannot_ever(need(40), [gpu("a", 80, free=0, share=0)]) == ""
    assert cannot_ever(need(81), [gpu("a", 80)]) != ""


needs = st.builds(
    Need,
    st.sampled_from(Priority),
    st.integers(0, 100),
    st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 1.0]),
    st.integers(0, 3),
)
gpus = st.builds(
    lambda total, used, share: Room("", True, total, 1.0, total - used, share),
    st.integers(1, 100),
    st.integers(0, 120),
    st.sampled_from([-0.1, 0.0, 0.3, 0.5, 1.0]),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Kind], list[Room]]:
    wanted = draw(st.lists(needs, max_size=6, unique=True))
    jobs = draw(st.permutations(range(1, 31)))
    cuts = sorted(draw(st.lists(st.integers(0, 30), min_size=len(wanted), max_size=len(wanted))))
    kinds = [
        Kind(number, one, sorted(jobs[begin:end]))
        for number, (one, begin, end) in enumerate(
            zip(wanted, [0, *cuts[:-1]], cuts, strict=True) if wanted else ()
        )
    ]
    rooms = [replace(room, uuid=f"g{n}") for n, room in enumerate(draw(st.lists(gpus, max_size=4)))]
    return kinds, [*rooms, cpu(cores=2, gib=100 / GIB)]


@given(situations(), st.integers(0, 40))
def test_no_device_ever_gets_more_than_it_holds(
    situation: tuple[list[Kind], list[Room]], most: int
) -> None:
    kinds, rooms = situation
    found = best_fit(kinds, rooms, most)
    assert len(found.actions) <= most
    need_of = {job: kind.need for kind in kinds for job in kind.jobs}
    started = [action.task for action in found.actions]
    assert len(set(started)) == len(started)
    memory, share = {r.uuid: 0 for r in rooms}, {r.uuid: 0.0 for r in rooms}
    for action in found.actions:
        one = need_of[action.task]
        assert len(set(action.devices)) == len(action.devices) == max(1, one.gpus)
        for uuid in action.devices:
            assert (uuid != "cpu") == bool(one.gpus)
            memory[uuid] += one.memory_bytes
            share[uuid] += one.share
    for room in rooms:
        if memory[room.uuid]:
            assert memory[room.uuid] <= room.free_memory_bytes
        if share[room.uuid]:
            assert share[room.uuid] <= room.free_share + 1e-6


@given(situations(), st.integers(0, 40))
def test_every_kind_is_started_whole_or_told_why_it_waits(
    situation: tuple[list[Kind], list[Room]], most: int
) -> None:
    kinds, rooms = situation
    found = best_fit(kinds, rooms, most)
    started = {action.task for action in found.actions}
    for kind in kinds:
        first = [job in started for job in kind.jobs]
        assert first == sorted(first, reverse=True), "the oldest of a kind goes first"
        assert (kind.number in found.waiting) == (not all(first))
    assert all(found.waiting.values())


@given(situations())
def test_who_waits_would_not_fit_into_what_is_left(
    situation: tuple[list[Kind], list[Room]],
) -> None:
    kinds, rooms = situation
    found = best_fit(kinds, rooms, 1000)
    need_of = {job: kind.need for kind in kinds for job in kind.jobs}
    left = {room.uuid: room for room in rooms}
    for action in found.actions:
        one = need_of[action.task]
        for uuid in action.devices:
            room = left[uuid]
            left[uuid] = replace(
                room,
                free_memory_bytes=room.free_memory_bytes - one.memory_bytes,
                free_share=room.free_share - one.share,
            )
    for _ in range(5):
        waiting = [
            Kind(k.number, k.need, [j for j in k.jobs if j not in need_of or j not in taken])
            for k in kinds
            for taken in [{action.task for action in found.actions}]
        ]
        assert best_fit(waiting, [*left.values()], 1000).actions == ()
