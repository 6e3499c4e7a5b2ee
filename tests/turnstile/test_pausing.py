"""Jobs paused at the gates of their GPUs, by the node."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.turnstile.harness import Program, World, by_pid, eventually, uuid_of

from treadle.programs.holding import Gatekeeper, seat_name

KEEPER = Path(__file__).with_name("keeper.py")


class Keeper(Program):
    """A gatekeeper in a process of its own, as a node is: its holds fall with it."""

    def __init__(self, world: World) -> None:
        environment = world.run_environment()
        super().__init__([sys.executable, str(KEEPER), str(world.folder)], environment)
        assert self.read() == "ready"

    def does(self, what: str, number: int) -> int:
        return int(self.ask(json.dumps([what, number, [uuid_of()]])))


def test_a_paused_job_launches_nothing_until_it_is_let_go(world: World) -> None:
    program = world.start(TREADLE_NAME=seat_name("train", 17))
    other = world.start(TREADLE_NAME=seat_name("train", 7))
    for one in (program, other):
        one.ask("launch 1 10")  # it sits down
    with world.page() as page, Keeper(world) as keeper:
        assert keeper.does("hold", 17) == 1
        assert by_pid(page, program).held
        assert not by_pid(page, other).held
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "its launch waits")
        other.ask("launch 1 10")
        assert by_pid(page, program).waiting
        assert keeper.does("let_go", 17) == 1
        program.read()
        assert not by_pid(page, program).held


def test_a_job_of_another_node_with_the_same_number_is_not_held(world: World) -> None:
    mine = world.start(TREADLE_NAME=seat_name("train", 17), TREADLE_MARK="17.1.mine")
    other = world.start(TREADLE_NAME=seat_name("train", 17), TREADLE_MARK="17.1.other")
    for one in (mine, other):
        one.ask("launch 1 10")
    with world.page() as page, Keeper(world) as keeper:
        assert keeper.does("hold", 17) == 1
        assert by_pid(page, mine).held
        assert not by_pid(page, other).held


def test_a_job_goes_on_where_the_node_dies(world: World) -> None:
    program = world.start(TREADLE_NAME=seat_name("train", 17))
    program.ask("launch 1 10")
    with world.page() as page:
        with Keeper(world) as keeper:
            assert keeper.does("hold", 17) == 1
            program.tell("launch 1 10")
            eventually(lambda: by_pid(page, program).waiting, "its launch waits")
        program.read()
        assert not by_pid(page, program).held


def test_a_critical_job_that_is_paused_holds_nobody_back(world: World) -> None:
    critical = world.start(TREADLE_NAME=seat_name("serve", 3), TREADLE_CLASS="critical")
    other = world.start()
    with world.page() as page, Keeper(world) as keeper:
        critical.ask("mark")
        assert by_pid(page, critical).busy
        assert keeper.does("hold", 3) == 1
        assert not by_pid(page, critical).busy
        other.ask("launch 1 10")


def test_nobody_is_found_where_there_is_no_page_or_no_such_job(world: World) -> None:
    keeper = Gatekeeper(world.folder)
    assert keeper.hold(17, [uuid_of()]) == 0
    world.start(TREADLE_NAME=seat_name("train", 117)).ask("launch 1 10")
    assert keeper.hold(17, [uuid_of()]) == 0
    assert keeper.hold(17, []) == 0


@pytest.mark.parametrize(
    ("name", "number", "seat"),
    [
        ("train", 17, "train#17"),
        ("a" * 60, 17, "a" * 28 + "#17"),
        ("é" * 30, 1, "é" * 14 + "#1"),
        ("", 5, "#5"),
    ],
)
def test_a_seat_is_named_after_its_job(name: str, number: int, seat: str) -> None:
    assert seat_name(name, number) == seat
    assert len(seat.encode()) <= 31
