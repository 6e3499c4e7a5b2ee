"""Launches that run for long: since when, and what they are called."""

from __future__ import annotations

import time

import pytest
from tests.turnstile.harness import World, by_pid, eventually
from tests.turnstile.test_turnstile import marker

FOREVER_US = 100_000_000
WATCHED = {"TREADLE_WATCH": "1"}


@pytest.mark.parametrize("way", ["dlsym", "proc2", "own", "plt"])
def test_a_launch_that_does_not_end_is_seen_with_its_name(world: World, way: str) -> None:
    program = world.start(way, **WATCHED)
    with world.page() as page:
        before = time.monotonic_ns()
        program.ask(f"launch 1 {FOREVER_US}")
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")
        since = by_pid(page, program).running_since_ns
        assert since is not None
        assert before <= since <= time.monotonic_ns()
        name = f"kernel_{FOREVER_US}"
        eventually(lambda: page.running_name(by_pid(page, program)) == name, "it has its name")
        assert by_pid(page, program).running_since_ns == since


@pytest.mark.parametrize("class_", ["critical", "normal", "background"])
def test_every_class_is_watched(world: World, class_: str) -> None:
    program = world.start(TREADLE_CLASS=class_, **WATCHED)
    program.ask(f"launch 1 {FOREVER_US}")
    with world.page() as page:
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")


def test_nothing_runs_once_all_has_ended_and_nobody_launches_any_more(world: World) -> None:
    program = world.start(**WATCHED)
    with world.page() as page:
        program.ask("launch 500 200")
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "one runs")
        first = by_pid(page, program).running_since_ns
        eventually(lambda: by_pid(page, program).running_since_ns != first, "another one runs")
        eventually(lambda: by_pid(page, program).running_since_ns is None, "nothing runs")


def test_what_a_stream_did_before_is_not_the_launch_s(world: World) -> None:
    """A deep queue of short kernels is no long kernel."""
    program = world.start(**WATCHED)
    with world.page() as page:
        program.ask("launch 400 1000")
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "one runs")
        started = time.monotonic_ns()
        seen = set()
        while (since := by_pid(page, program).running_since_ns) is not None:
            seen.add(since)
        assert len(seen) > 3
        assert max(seen) > started


def test_more_launches_than_are_watched_do_no_harm(world: World) -> None:
    program = world.start(**WATCHED)
    with world.page() as page:
        assert program.ask("launch 5000 20") == "launched 5000 result=0"
        program.ask("sync")
        eventually(lambda: by_pid(page, program).running_since_ns is None, "nothing runs")
        program.ask(f"launch 1 {FOREVER_US}")
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")


def test_a_launch_that_waits_at_the_gate_does_not_run(world: World) -> None:
    critical = marker(world)
    program = world.start(**WATCHED)
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell(f"launch 1 {FOREVER_US}")
        eventually(lambda: by_pid(page, program).waiting, "it waits")
        eventually(lambda: by_pid(page, program).running_since_ns is None, "nothing runs")
        opened = time.monotonic_ns()
        critical.ask("unmark")
        program.read()
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")
        since = by_pid(page, program).running_since_ns
        assert since is not None
        assert since >= opened


def test_a_graph_is_watched_as_one_launch(world: World) -> None:
    program = world.start(**WATCHED)
    with world.page() as page:
        program.ask(f"entry cuGraphLaunch {FOREVER_US}")
        eventually(lambda: page.running_name(by_pid(page, program)) == "a graph", "a graph runs")


def test_a_cooperative_kernel_has_a_name_too(world: World) -> None:
    program = world.start(**WATCHED)
    name = f"kernel_{FOREVER_US}"
    with world.page() as page:
        program.ask(f"entry cuLaunchCooperativeKernel {FOREVER_US}")
        eventually(lambda: page.running_name(by_pid(page, program)) == name, "it has its name")


def test_who_is_not_to_be_watched_is_not(world: World) -> None:
    program = world.start()
    watched = world.start(**WATCHED)
    with world.page() as page:
        program.ask(f"launch 1 {FOREVER_US}")
        watched.ask(f"launch 1 {FOREVER_US}")
        eventually(lambda: by_pid(page, watched).running_since_ns is not None, "the other runs")
        assert by_pid(page, program).running_since_ns is None
        assert page.running_name(by_pid(page, program)) is None


def test_who_has_left_runs_nothing(world: World) -> None:
    program = world.start(**WATCHED)
    with world.page() as page:
        program.ask(f"launch 1 {FOREVER_US}")
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")
        program.kill()
        other = world.start()
        other.ask("launch 1 10")
        assert by_pid(page, other).running_since_ns is None


def test_a_child_has_launches_of_its_own(world: World) -> None:
    program = world.start(**WATCHED)
    program.ask("launch 1 10")
    program.tell("fork")
    assert "begin=0 fresh=0" in program.read()
    program.tell("")
    assert program.read() == "parent status=0"
    program.ask(f"launch 1 {FOREVER_US}")
    with world.page() as page:
        eventually(lambda: by_pid(page, program).running_since_ns is not None, "it runs")
