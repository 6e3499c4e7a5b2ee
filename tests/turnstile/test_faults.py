"""What goes wrong: pages that vanish, shrink or lie, and libraries that also hook dlsym."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest
from tests.turnstile.conftest import SOURCES
from tests.turnstile.harness import World, by_pid, eventually, uuid_of
from tests.turnstile.test_turnstile import marker

from treadle.turnstile import build as gate_build
from treadle.turnstile.page import ABI, PAGE_BYTES


def test_a_page_of_another_version_opens_the_gate_and_says_so_once(world: World) -> None:
    with world.page() as page:
        path = page.path
    data = path.read_bytes()
    path.write_bytes(data[:8] + struct.pack("<I", ABI + 1) + data[12:] + bytes(4096))
    program = world.start()
    assert program.ask("launch 100 10") == "launched 100 result=0"
    code, errors = program.end()
    assert code == 0
    assert errors.count("another version") == 1


@pytest.mark.parametrize("content", [b"", b"short", os.urandom(PAGE_BYTES)])
def test_a_file_that_is_no_page_opens_the_gate(world: World, content: bytes) -> None:
    (world.folder / uuid_of()).write_bytes(content)
    program = world.start()
    assert program.ask("launch 100 10") == "launched 100 result=0"
    code, errors = program.end()
    assert code == 0
    assert errors.count("treadle:") == 1


def test_a_page_truncated_in_use_opens_the_gate(world: World) -> None:
    marker(world)
    program = world.start()
    program.ask("launch 10 10")
    os.truncate(world.folder / uuid_of(), 0)
    assert program.ask("launch 5000 1") == "launched 5000 result=0"
    code, errors = program.end()
    assert code == 0
    assert errors.count("treadle:") >= 1


def test_a_page_truncated_while_waiting_opens_the_gate(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask("launch 10 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waiting")
    os.truncate(world.folder / uuid_of(), 0)
    assert program.read() == "launched 1 result=0"


def test_a_damaged_page_opens_the_gate(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask("launch 10 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waiting")
        with page.path.open("r+b") as file:
            file.write(bytes(64))
        assert program.read() == "launched 1 result=0"


def test_marks_of_nobody_are_taken_back(world: World) -> None:
    program = world.start()
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        with page.path.open("r+b") as file:
            file.seek(128)
            file.write(b"\xff" * 48)  # every record marked, and every record a member
        assert program.ask("launch 100 10") == "launched 100 result=0"
        assert not page.snapshot().closed_for


def test_random_damage_hangs_nobody(world: World) -> None:
    program = world.start()
    other = world.start()
    program.ask("launch 1 10")
    other.ask("launch 1 10")
    with world.page() as page:
        path = page.path
    for seed in range(20):
        noise = bytes((seed * 7919 + i * 104729) % 251 for i in range(PAGE_BYTES - 128))
        with path.open("r+b") as file:
            file.seek(128)
            file.write(noise)
        program.tell("launch 50 1")
        other.tell("launch 50 1")
        assert program.read() == "launched 50 result=0"
        assert other.read() == "launched 50 result=0"


def test_a_page_that_is_removed_is_made_again_and_all_meet_there(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask("launch 1 10")
    (world.folder / uuid_of()).unlink()

    def met() -> bool:
        program.ask("launch 1 10")
        critical.ask("mark")
        critical.ask("unmark")
        if not (world.folder / uuid_of()).exists():
            return False
        with world.page() as page:
            return len(page.snapshot().members) == 2

    eventually(met, "both at the new page")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waiting")
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"


def test_a_member_moves_to_another_page_when_told(world: World) -> None:
    program = world.start()
    program.ask("launch 1 10")
    with world.page(0) as here, world.page(1) as there:
        here.move(by_pid(here, program).index, uuid_of(1))

        def moved() -> bool:
            program.ask("launch 1 10")
            return any(m.pid == program.pid for m in there.snapshot().members)

        eventually(moved, "moved")
        assert here.snapshot().members == ()


def test_a_mark_set_for_a_program_comes_along_and_falls(world: World) -> None:
    program = world.start(TREADLE_CLASS="critical")
    program.ask("launch 1 10")
    with world.page(0) as here, world.page(1) as there:
        here.move(by_pid(here, program).index, uuid_of(1))

        def moved() -> bool:
            program.ask("launch 5000 1")  # marked, when it is time to look
            return any(m.pid == program.pid for m in there.snapshot().members)

        eventually(moved, "moved")
        program.ask("sync")
        eventually(lambda: not there.snapshot().closed_for, "idle")
        assert not here.snapshot().closed_for


def test_a_folder_that_cannot_be_written_opens_the_gate(world: World) -> None:
    program = world.start(TREADLE_TURNSTILE="/proc/nowhere/page")
    assert program.ask("launch 10 10") == "launched 10 result=0"
    assert "cannot be used" in program.end()[1]


def test_words_that_mean_nothing_are_said_and_ignored(world: World) -> None:
    program = world.start(TREADLE_CLASS="urgent", TREADLE_MEMORY_BYTES="lots")
    assert program.ask("launch 10 10") == "launched 10 result=0"
    errors = program.end()[1]
    assert "TREADLE_CLASS" in errors
    assert "TREADLE_MEMORY_BYTES" in errors


@pytest.fixture(scope="session")
def other_hook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second library that interposes dlsym."""
    path = tmp_path_factory.mktemp("hook") / "libother.so"
    command = [*gate_build.compiler(), "-shared", "-fPIC", "-O1", f"-I{gate_build.NATIVE}"]
    command += ["-fvisibility=hidden", "-o", str(path), str(SOURCES / "other_hook.c"), "-ldl"]
    subprocess.run(command, check=True)
    return path


def test_another_hook_of_dlsym_after_the_gate_still_works(world: World, other_hook: Path) -> None:
    critical = marker(world)
    program = world.start(LD_PRELOAD=f"{world.built.library}:{other_hook}")
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waiting")
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"
        assert by_pid(page, program).launches == 2
    assert "other hook: 2 launches" in program.end()[1]


def test_another_hook_of_dlsym_before_the_gate_is_pointed_out(
    world: World, other_hook: Path
) -> None:
    program = world.start(LD_PRELOAD=f"{other_hook}:{world.built.library}")
    assert program.ask("launch 2 10") == "launched 2 result=0"
    errors = program.end()[1]
    assert "other hook: 2 launches" in errors
    assert errors.count("first in LD_PRELOAD") == 1


def test_linked_programs_are_gated_whatever_comes_first(world: World, other_hook: Path) -> None:
    critical = marker(world)
    program = world.start("plt", LD_PRELOAD=f"{other_hook}:{world.built.library}")
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(page, program).waiting, "waiting")
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"
