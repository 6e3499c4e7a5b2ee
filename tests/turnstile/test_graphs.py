"""Graphs longer than the budget are launched in parts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.turnstile.harness import Program, World, by_pid, eventually
from tests.turnstile.test_turnstile import marker

NODES, NODE_US = 100, 100


def replay(program: Program, times: int, command: str = "replay") -> Mapping[str, str]:
    """Launch the graph so often, and say what the driver has seen of it."""
    program.ask("contextsync")
    program.ask("stats")
    assert program.ask(f"{command} {times}") == "replayed result=0"
    return program.ask_fields("stats")


def graph(
    world: World,
    *,
    nodes: int = NODES,
    node_us: int = NODE_US,
    other: str = "",
    more: Mapping[str, str] | None = None,
) -> Program:
    """A program that has a graph of 10 ms and has launched it beside a critical member."""
    marker(world)
    program = world.start(**(more or {}))
    program.ask(f"graph {nodes} {node_us} {other}")
    for _ in range(6):
        replay(program, 1)
    return program


def launches(program: Program, world: World, times: int) -> int:
    """How many launches the driver sees for so many of the program's."""
    with world.page() as page:
        before = by_pid(page, program).launches
        replay(program, times)
        return by_pid(page, program).launches - before


def test_a_long_graph_keeps_to_the_budget_and_all_of_it_runs_in_order(world: World) -> None:
    program = graph(world)
    with world.page() as page:
        page.set_knob("quiet_budget_ns", 300_000)
    replay(program, 3)
    seen = replay(program, 3)
    assert int(seen["most_backlog_ns"]) < 3_000_000  # 20 ms as a whole
    assert seen["disorder"] == "0"
    assert launches(program, world, 1) > NODES * NODE_US / 1000


def test_a_graph_that_fits_the_budget_stays_whole(world: World) -> None:
    assert launches(graph(world, nodes=2), world, 5) == 5


def test_a_graph_is_whole_again_once_nobody_urgent_is_there(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask(f"graph {NODES} {NODE_US}")
    for _ in range(4):
        replay(program, 1)
    assert launches(program, world, 1) > 1
    with critical:
        pass  # it ends
    eventually(lambda: launches(program, world, 5) == 5, "launched whole")
    assert program.ask_fields("stats")["disorder"] == "0"


@pytest.mark.parametrize(
    ("other", "more"),
    [
        ("kernel_host", {}),
        ("ncclDevKernel_AllReduce", {}),
        ("", {"STANDIN_GRAPH_BACKWARDS": "1"}),
    ],
)
def test_a_graph_that_cannot_be_divided_stays_whole(
    world: World, other: str, more: Mapping[str, str]
) -> None:
    program = graph(world, other=other, more=more)
    assert launches(program, world, 3) == 3
    assert program.ask_fields("stats")["disorder"] == "0"


def test_a_graph_that_was_changed_is_launched_as_it_is_now(world: World) -> None:
    program = graph(world)
    assert program.ask("change") == "changed result=0"
    assert launches(program, world, 3) == 3


def test_launches_in_other_streams_run_one_after_the_other(world: World) -> None:
    program = graph(world)
    seen = replay(program, 6, "alternate")
    assert (seen["disorder"], seen["overlaps"]) == ("0", "0")
    program.ask("contextsync")


def test_a_graph_that_always_changes_streams_is_launched_in_parts_too(world: World) -> None:
    marker(world)
    program = world.start()
    program.ask(f"graph {NODES} {NODE_US}")
    before = int(replay(program, 6, "alternate")["launches"])
    seen = replay(program, 6, "alternate")
    assert int(seen["launches"]) - before > 6
    assert (seen["disorder"], seen["overlaps"]) == ("0", "0")


@pytest.mark.parametrize("change", ["budget", "update"])
def test_a_whole_launch_in_another_stream_comes_behind_parts(world: World, change: str) -> None:
    with world.page() as page:
        page.set_knob("budget_ns", 50_000_000)
        program = graph(world, node_us=1000)
        assert launches(program, world, 1) > 1
        replay(program, 1)  # half of its 100 ms is still to come
        page.set_knob("budget_ns", 0)
        if change == "update":
            program.ask("change")
        program.ask("elsewhere 1")
    assert program.ask_fields("stats")["overlaps"] == "0"


def test_each_threads_own_stream_is_another_one(world: World) -> None:
    with world.page() as page:
        page.set_knob("budget_ns", 50_000_000)
        seen = replay(graph(world, node_us=1000), 3, "each")
    assert (seen["disorder"], seen["overlaps"]) == ("0", "0")


def test_parts_of_launches_at_once_from_many_threads_are_not_mixed(world: World) -> None:
    marker(world)
    program = world.start()
    program.ask(f"graph {NODES} {NODE_US}")
    for _ in range(4):
        seen = replay(program, 8, "together")
        assert (seen["disorder"], seen["overlaps"]) == ("0", "0")


def test_the_graph_of_a_critical_program_is_left_alone(world: World) -> None:
    marker(world)
    program = world.start(TREADLE_CLASS="critical")
    program.ask(f"graph {NODES} {NODE_US}")
    replay(program, 1)
    assert launches(program, world, 3) == 3


def test_a_graph_that_is_destroyed_leaves_nothing(world: World) -> None:
    program = graph(world)
    for _ in range(3):
        assert program.ask("discard") == "discarded result=0"
        program.ask(f"graph {NODES} {NODE_US}")
        assert replay(program, 3)["disorder"] == "0"
