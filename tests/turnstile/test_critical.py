"""Critical programs that mark nothing themselves: the gate marks for them."""

from __future__ import annotations

import signal

import pytest
from tests.turnstile.harness import World, by_pid, eventually
from tests.turnstile.test_turnstile import marker


def test_a_launch_marks_and_the_end_of_its_work_clears(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    background = world.start()
    background.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("launch 1 300000")
        assert by_pid(page, critical).busy
        background.tell("launch 1 10")
        eventually(lambda: by_pid(page, background).waiting, "waiting")
        assert by_pid(page, critical).busy
        # Nobody synchronises: the helper finds out.
        assert background.read() == "launched 1 result=0"
        assert not by_pid(page, critical).busy
        assert by_pid(page, background).waited_seconds > 0.1


@pytest.mark.parametrize(
    "entry", ["cuMemcpy3DAsync", "cuMemcpyBatchAsync", "cuMemcpy2D", "cuMemcpyDtoD"]
)
def test_a_copy_marks_until_it_is_over(world: World, entry: str) -> None:
    """Not only until the call returns, where neither side is in host memory."""
    critical = world.start(TREADLE_CLASS="critical")
    critical.ask("launch 1 10")
    with world.page() as page:
        eventually(lambda: not by_pid(page, critical).busy, "clear")
        assert critical.ask(f"copy {entry} 2000000000") == "copy result=0"
        for _ in range(20):
            assert by_pid(page, critical).busy
        assert by_pid(page, critical).copies == 1
        eventually(lambda: not by_pid(page, critical).busy, "clear")


def test_synchronising_clears_the_mark(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("gap_ns", 0)
        critical.ask("serve 40 1 200 3000")
        member = by_pid(page, critical)
        eventually(lambda: not by_pid(page, critical).busy, "clear")
        assert member.launches == 40
        assert member.waits == 0


def test_per_thread_streams_are_followed_too(world: World) -> None:
    critical = world.start("own", TREADLE_CLASS="critical")
    with world.page() as page:
        critical.ask("entry cuLaunchGrid 100")  # the legacy stream
        critical.ask("entry cuLaunchKernel 100")
        eventually(lambda: not by_pid(page, critical).busy, "clear")


def test_pauses_inside_a_request_are_learned(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("gap_ns", 50_000_000)
        critical.ask("serve 10 50 20 50")
        eventually(lambda: not by_pid(page, critical).busy, "clear")
        before = by_pid(page, critical).marks
        critical.ask("serve 10 50 20 50")
        # 500 launches with pauses far below 50 ms: nowhere near 500 marks.
        assert by_pid(page, critical).marks - before < 250
        eventually(lambda: not by_pid(page, critical).busy, "clear")


def test_a_longest_gap_of_zero_clears_at_every_pause(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("gap_ns", 0)
        critical.ask("serve 5 50 20 50")
        before = by_pid(page, critical).marks
        critical.ask("serve 2 50 20 50")
        assert by_pid(page, critical).marks - before >= 95


def test_normal_work_holds_back_background_and_waits_for_critical(world: World) -> None:
    critical = marker(world)
    normal = world.start(TREADLE_CLASS="normal")
    background = world.start()
    normal.ask("launch 1 10")
    background.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        normal.tell("launch 1 300000")
        eventually(lambda: by_pid(page, normal).waiting, "normal waits")
        critical.ask("unmark")
        assert normal.read() == "launched 1 result=0"
        background.tell("launch 1 10")
        eventually(lambda: by_pid(page, background).waiting, "background waits")
        assert by_pid(page, normal).busy
        assert background.read() == "launched 1 result=0"


def test_a_program_that_marks_for_itself_is_left_to_it(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        critical.ask("mark")
        critical.ask("unmark")
        before = by_pid(page, critical).marks
        critical.ask("launch 10 100")
        assert by_pid(page, critical).marks == before
        assert not by_pid(page, critical).busy


def test_a_thread_may_have_a_class_of_its_own(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("mark")
        program.ask("launch 1 10")
        program.tell("background 1 10")
        eventually(lambda: by_pid(page, program).waiting, "its background thread waits")
        program.tell("unmark")
        assert {program.read(), program.read()} == {"unmark 0", "background result=0"}


def test_a_stream_destroyed_with_work_on_it_is_forgotten(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        for _ in range(20):
            assert critical.ask("brief 100") == "brief result=0"
        eventually(lambda: not by_pid(page, critical).busy, "clear")
    assert critical.end()[0] == 0


def test_a_critical_program_killed_in_the_middle_lets_others_go(world: World) -> None:
    background = world.start()
    background.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        for _ in range(5):
            critical = world.start(TREADLE_CLASS="critical")
            critical.ask("launch 1 60000000")
            background.tell("launch 1 10")
            eventually(lambda: by_pid(page, background).waiting, "waiting")
            critical.kill()
            assert background.read() == "launched 1 result=0"


def test_a_stopped_marker_can_be_released_by_hand(world: World) -> None:
    critical = world.start(TREADLE_CLASS="critical")
    background = world.start()
    background.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("launch 1 60000000")
        critical.signal(signal.SIGSTOP)
        background.tell("launch 1 10")
        eventually(lambda: by_pid(page, background).waiting, "waiting")
        node = marker(world, 3, "node")
        node.ask(f"clear {by_pid(page, critical).index}")
        assert background.read() == "launched 1 result=0"
        critical.signal(signal.SIGCONT)
