"""Classes of threads and streams: one process may hold critical and background work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.turnstile.harness import Program, World, by_pid, eventually
from tests.turnstile.test_turnstile import marker

from treadle.turnstile import TurnstileError, assign, load_gate_library, using
from treadle.turnstile.page import Page
from treadle.types import Priority

CRITICAL, BACKGROUND = int(Priority.CRITICAL), int(Priority.BACKGROUND)


def classes(path: Path, index: int) -> set[int]:
    """The classes that a record is a member of."""
    page = Page.from_buffer_copy(path.read_bytes())
    return {class_ for class_, members in enumerate(page.members) if members >> index & 1}


def mixed(world: World) -> Program:
    """A critical program whose stream is background work."""
    program = world.start(TREADLE_CLASS="critical")
    assert program.ask(f"assign {BACKGROUND}") == "assign 0"
    return program


@pytest.mark.parametrize("way", ["stream", "thread"])
def test_background_work_of_a_critical_program_waits_like_any_other(world: World, way: str) -> None:
    critical = marker(world)
    program = world.start(TREADLE_CLASS="critical")
    program.ask(f"{'assign' if way == 'stream' else 'class'} {BACKGROUND}")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 10")
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waits")
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"
        program.ask(f"{'assign' if way == 'stream' else 'class'} -1")
        critical.ask("mark")
        assert program.ask("launch 1 10") == "launched 1 result=0"
        assert by_pid(page, program).waits == 1


def test_a_streams_class_goes_before_its_threads(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask(f"class {BACKGROUND}")
    assert program.ask(f"assign {CRITICAL}") == "assign 0"
    critical.ask("mark")
    assert program.ask("launch 1 10") == "launched 1 result=0"
    with world.page() as page:
        assert by_pid(page, program).waits == 0


def test_background_work_of_a_critical_program_does_not_mark(world: World) -> None:
    program = mixed(world)
    with world.page() as page:
        program.ask("launch 5 100000")
        assert not by_pid(page, program).busy
        assert by_pid(page, program).marks == 0


def test_background_work_of_a_critical_program_keeps_to_the_budget(world: World) -> None:
    program = mixed(world)
    with world.page() as page:
        page.set_knob("quiet_budget_ns", 100_000)
        program.ask("launch 20 100")
        program.ask("sync")
        program.ask("stats")
        program.ask("launch 200 100")
        assert int(program.ask_fields("stats")["most_backlog_ns"]) < 1_000_000
        assert by_pid(page, program).budget_waits > 0


def test_background_work_waits_while_its_own_program_is_busy(world: World) -> None:
    program = mixed(world)
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 10")
        program.ask("entry cuLaunchGrid 300000")  # on the default stream: critical
        assert by_pid(page, program).busy
        assert program.ask("launch 1 10") == "launched 1 result=0"
        assert not by_pid(page, program).busy
        assert by_pid(page, program).waited_seconds > 0.1


def test_a_thread_does_not_wait_for_its_own_mark(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 10")
        program.ask("mark")
        program.ask(f"class {BACKGROUND}")
        assert program.ask("launch 20 10") == "launched 20 result=0"
        assert by_pid(page, program).busy
        program.ask("unmark")  # as what it was marked, whatever the class is now
        assert not by_pid(page, program).busy


def test_a_mark_of_the_same_program_is_not_waited_for_without_end(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 10")
        program.ask("mark")
        program.tell("background 1 10")
        assert program.read() == "background result=0"
        assert by_pid(page, program).waited_seconds > 0.5


def test_another_programs_mark_is_waited_for_beside_ones_own(world: World) -> None:
    critical = marker(world)
    program = world.start(TREADLE_CLASS="critical")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 10")
        program.ask("mark")
        program.ask(f"class {BACKGROUND}")
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waits")
        assert not program.answered(0.05)
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"


def test_a_seat_is_a_member_of_every_class_in_use(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    program.ask(f"class {BACKGROUND}")  # before there is a seat
    program.ask("launch 1 10")
    with world.page() as page:
        index = by_pid(page, program).index
        assert classes(page.path, index) == {CRITICAL, BACKGROUND}
        program.ask(f"assign {BACKGROUND}")
        program.ask("class -1")
        assert classes(page.path, index) == {CRITICAL, BACKGROUND}
        program.ask("assign -1")
        assert classes(page.path, index) == {CRITICAL}


def test_a_new_page_gets_the_classes_as_well(world: World) -> None:
    program = mixed(world)
    program.ask("launch 1 10")
    with world.page() as page:
        path = page.path
    path.unlink()

    def seated() -> bool:
        program.ask("launch 1 10")
        return path.exists() and classes(path, 0) == {CRITICAL, BACKGROUND}

    eventually(seated, "seated at the new page")


def test_lengths_are_learned_beside_equals(world: World) -> None:
    program, equal = mixed(world), world.start()
    with world.page() as page:
        equal.ask("launch 1 10")
        for _ in range(10):
            program.ask("launch 20 500")
            program.ask("sync")
        assert by_pid(page, program).samples > 0


def test_a_class_falls_with_its_stream(world: World) -> None:
    program = world.start()
    assert program.ask("assigned") == f"assigned before={BACKGROUND} after=-1"


def test_a_forked_child_keeps_only_its_own_threads_class(world: World) -> None:
    program = mixed(world)
    program.ask("launch 1 10")
    with world.page() as page:
        program.tell("fork")
        assert "fresh=0" in program.read()
        indexes = {m.index for m in page.snapshot().members} - {by_pid(page, program).index}
        assert [classes(page.path, index) for index in indexes] == [{CRITICAL}]
        program.tell("")
        program.read()


def test_using_nests_and_assign_can_be_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_GATE_LIBRARY", str(world.built.library))
    load_gate_library.cache_clear()
    library = load_gate_library()
    try:
        with using(Priority.BACKGROUND):
            with using(Priority.NORMAL):
                assert library.thread_class() == Priority.NORMAL
            assert library.thread_class() == Priority.BACKGROUND
        assert library.thread_class() is None
        assign(0x5550, Priority.BACKGROUND)
        assign(0, Priority.NORMAL)
        assert library.stream_class(0x5550) == Priority.BACKGROUND
        assert library.stream_class(1) == Priority.NORMAL  # another name of the same stream
        assert library.stream_class(2) is None
        for stream in (0x5550, 0):
            assign(stream, None)
        assert library.stream_class(0x5550) is None
        most = 256
        for n in range(most):
            assign(0x10000 + 16 * n, Priority.BACKGROUND)
        with pytest.raises(TurnstileError, match="too many"):
            assign(0x5550, Priority.BACKGROUND)
        for n in range(most):
            assign(0x10000 + 16 * n, None)
        assign(0x5550, Priority.BACKGROUND)
        assign(0x5550, None)
    finally:
        load_gate_library.cache_clear()
