"""Seats and marks: they belong to living processes and fall with them."""

from __future__ import annotations

import random
import sys
import time

from tests.turnstile.harness import Program, World, by_pid, eventually, only_member, uuid_of

from treadle.types import Priority

MARKER = "tests.turnstile.marker"


def marker(world: World, class_: int = 0, name: str = "marker", uuid: str = uuid_of()) -> Program:
    """A cooperative program with a seat and no CUDA."""
    environment = world.environment()
    del environment["LD_PRELOAD"], environment["TREADLE_TURNSTILE"]
    environment["PYTHONPATH"] = ":".join(sys.path)
    program = Program(
        [
            *(sys.executable, "-m", MARKER, str(world.built.library)),
            *(str(world.folder), uuid, str(class_), name),
        ],
        environment,
    )
    world.programs.append(program)
    assert program.read() == "ready"
    return program


def test_a_member_is_seen_with_its_class_and_name(world: World) -> None:
    program = marker(world, 1, "server")
    with world.page() as page:
        member = only_member(page)
        assert (member.name, member.priority, member.pid) == (
            "server",
            Priority.NORMAL,
            program.pid,
        )
        assert not member.busy


def test_marks_nest_and_close_the_gate_for_lower_classes(world: World) -> None:
    program = marker(world, 1)
    with world.page() as page:
        for line, busy in (
            ("mark", True),
            ("mark", True),
            ("unmark", True),
            ("unmark", False),
            ("unmark", False),
        ):
            program.ask(line)
            snapshot = page.snapshot()
            assert snapshot.members[0].busy is busy
            assert snapshot.closed_for == (
                frozenset({Priority.BACKGROUND}) if busy else frozenset()
            )
        assert page.snapshot().members[0].marks == 1


def test_who_leaves_takes_its_marks_along(world: World) -> None:
    program = marker(world)
    with world.page() as page:
        program.ask("mark")
        program.ask("leave")
        assert page.snapshot().members == ()
        assert page.snapshot().closed_for == frozenset()


def test_the_dead_are_not_listed(world: World) -> None:
    program = marker(world)
    with world.page() as page:
        program.ask("mark")
        program.kill()
        assert page.snapshot().members == ()


def test_who_ends_in_order_leaves_nothing_behind(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    program.ask("launch 1 60000000")
    with world.page() as page:
        assert page.snapshot().closed_for
        assert program.end()[0] == 0
        assert not page.snapshot().closed_for


def test_seats_of_the_dead_are_taken_again(world: World) -> None:
    with world.page() as page:
        for _ in range(3):
            program = marker(world)
            program.ask("mark")
            program.kill()
        survivor = marker(world, 2)
        survivor.ask("reap")
        snapshot = page.snapshot()
        assert [member.pid for member in snapshot.members] == [survivor.pid]
        assert snapshot.closed_for == frozenset()


def test_a_marker_killed_at_any_moment_leaves_the_gate_open(world: World) -> None:
    chance = random.Random(3)
    program = world.start()
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        for _ in range(50):
            killed = marker(world)
            killed.tell("flicker" if chance.random() < 0.7 else "mark")
            eventually(lambda: page.snapshot().marks_set > 0, "a mark")
            time.sleep(chance.random() * 0.003)
            killed.kill()
            assert program.ask("launch 3 10") == "launched 3 result=0"


def test_a_held_member_waits_until_its_holder_lets_go_or_dies(world: World) -> None:
    program = world.start()
    program.ask("launch 1 10")
    with world.page() as page:
        index = by_pid(page, program).index
        node = marker(world, 3, "node")
        node.ask(f"hold {index} on")
        program.tell("launch 1 10")
        eventually(lambda: page.snapshot().members[index].waiting, "waiting")
        node.ask(f"hold {index} off")
        assert program.read() == "launched 1 result=0"
        node.ask(f"hold {index} on")
        program.tell("launch 1 10")
        eventually(lambda: page.snapshot().members[index].waiting, "waiting")
        assert not program.answered(0.05)
        node.kill()
        assert program.read() == "launched 1 result=0"


def test_a_hold_falls_with_its_holders_seat_whoever_sits_there_next(world: World) -> None:
    program = world.start()
    program.ask("launch 1 10")
    with world.page() as page:
        index = by_pid(page, program).index
        node = marker(world, 3, "node")
        seat = by_pid(page, node).index
        node.ask(f"hold {index} on")
        node.kill()
        assert by_pid(page, marker(world, 2, "next")).index == seat
        assert program.ask("launch 1 10") == "launched 1 result=0"


def test_brief_marks_of_the_living_do_not_hide_a_dead_one(world: World) -> None:
    dead, living = marker(world), marker(world)
    program = world.start()
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        dead.ask("blink")
        living.tell("flicker")
        dead.kill()
        program.tell("launch 1 10")
        assert program.answered(0.4)  # who marks looks itself, once a second
