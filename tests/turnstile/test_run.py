"""``treadle run``: the program is what it was, gated, or told why it is not."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.turnstile.harness import Program, World, eventually
from tests.turnstile.test_turnstile import marker

from treadle.cli.exits import Exit
from treadle.errors import TreadleError
from treadle.turnstile import Member, TurnstileError, gate_library_path
from treadle.turnstile.launch import GateOptions, gate_environment, why_no_effect
from treadle.types import Priority
from treadle.units import parse_bytes

TREADLE_RUN = (sys.executable, "-m", "treadle", "run")


def start(world: World, *options: str) -> Program:
    """The stand-in's program under ``treadle run``."""
    program = Program(
        [*TREADLE_RUN, *options, "--", str(world.built.program), "dlsym"], world.run_environment()
    )
    world.programs.append(program)
    assert program.read().startswith("ready")
    return program


def run(world: World, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TREADLE_RUN, *words],
        env=world.run_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    source, binary = folder / "still.c", folder / "still"
    source.write_text('#include <stdio.h>\nint main(void) { puts("still"); return 0; }\n')
    made = subprocess.run(["cc", "-static", "-o", binary, source], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no static C library here")
    return binary


def test_a_program_is_gated_and_seen_as_it_was_told(world: World) -> None:
    program = start(world, "--priority", "normal", "--memory", "10GiB", "--name", "ranker")
    program.ask("launch 3 10")
    with world.page() as page:
        (member,) = page.snapshot().members
        assert (member.name, member.pid, member.launches) == ("ranker", program.pid, 3)
        assert member.priority is Priority.NORMAL
        assert member.memory_limit_bytes == 10 * 2**30


@pytest.mark.parametrize("launched_before", [False, True])
def test_a_daemon_stays_gated(world: World, launched_before: bool) -> None:
    critical = marker(world)
    program = start(world)
    if launched_before:
        program.ask("launch 1 10")
    pid = int(program.ask_fields("daemon")["pid"])
    assert pid != program.pid
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        assert program.ask("launch 2 10") == "launched 2 result=0"
        eventually(lambda: len(page.snapshot().members) == 2, "only the daemon's seat is left")

        def seen() -> Member:
            (member,) = (m for m in page.snapshot().members if m.pid == pid)
            return member

        daemon = seen()
        assert (daemon.priority, daemon.launches) == (Priority.BACKGROUND, 2)

        critical.ask("mark")
        program.tell("launch 1 10")
        eventually(lambda: seen().waiting, "waiting")
        assert not program.answered(0.05)
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"


def test_the_seat_of_a_daemon_falls_with_it(world: World) -> None:
    program, other = start(world, "--priority", "critical"), world.start()
    pid = int(program.ask_fields("daemon")["pid"])
    other.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        program.ask("launch 1 60000000")  # a minute
        other.tell("launch 1 10")
        eventually(lambda: bool(page.snapshot().closed_for), "closed")
        assert not other.answered(0.05)
        os.kill(pid, signal.SIGKILL)
        assert other.read() == "launched 1 result=0"
        assert [member.pid for member in page.snapshot().members] == [other.pid]


def test_the_program_is_this_process_and_its_end_is_passed_on(world: World) -> None:
    with subprocess.Popen(
        [*TREADLE_RUN, "--", "/bin/sh", "-c", "echo $$; exit 7"],
        env=world.run_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        output, _ = process.communicate(timeout=60)
        assert (int(output), process.returncode) == (process.pid, 7)


def test_options_after_the_command_are_its_own(world: World) -> None:
    done = run(world, "/bin/echo", "--priority", "--", "-x")
    assert (done.returncode, done.stdout, done.stderr) == (Exit.OK, "--priority -- -x\n", "")


def test_a_command_that_is_not_there(world: World) -> None:
    done = run(world, "--", "no-such-program")
    assert (done.returncode, done.stdout) == (Exit.NOT_FOUND, "")
    assert done.stderr == "treadle run: no-such-program: command not found\n"


def test_a_command_that_may_not_be_executed(world: World, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("#!/bin/sh\necho never\n")
    for command in (file, tmp_path):
        done = run(world, "--", str(command))
        assert (done.returncode, done.stdout) == (Exit.NOT_EXECUTABLE, "")
        assert done.stderr == f"treadle run: {command}: Permission denied\n"


def test_a_command_that_is_no_program(world: World, tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"\x00\x01\x02")
    file.chmod(0o755)
    done = run(world, "--", str(file))
    assert (done.returncode, done.stdout) == (Exit.NOT_EXECUTABLE, "")
    assert done.stderr == f"treadle run: {file}: Exec format error\n"


def test_a_static_program_runs_and_is_said_not_to_be_gated(
    world: World, static_program: Path
) -> None:
    done = run(world, "--", str(static_program))
    assert (done.returncode, done.stdout) == (Exit.OK, "still\n")
    assert done.stderr == f"treadle run: not gated: {static_program} is statically linked\n"


def test_a_script_is_judged_by_its_interpreter(static_program: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    for first, reason in (
        (f"#!{static_program}", f"{static_program} is statically linked"),
        (f"#!/usr/bin/env {static_program}", f"{static_program} is statically linked"),
        ("#!/bin/sh", ""),
        ("#!", ""),
        ("echo", ""),
    ):
        script.write_text(f"{first}\n")
        script.chmod(0o755)
        assert why_no_effect(str(script)) == reason, first


def test_a_program_of_somebody_elses_rights_is_pointed_out(tmp_path: Path) -> None:
    program = tmp_path / "sh"
    program.write_bytes(Path("/bin/sh").read_bytes())
    program.chmod(0o755)
    assert why_no_effect(str(program)) == ""
    program.chmod(0o755 | stat.S_ISUID)
    assert "changes its user or group" in why_no_effect(str(program))


@pytest.mark.parametrize("missing", ["library", "folder"])
def test_what_keeps_the_gate_away_is_said_and_the_program_runs(world: World, missing: str) -> None:
    variable, path = {
        "library": ("TREADLE_GATE_LIBRARY", "/nowhere/gate.so"),
        "folder": ("TREADLE_TURNSTILE_DIR", "/proc/nowhere"),
    }[missing]
    done = run(world, "--", "/bin/echo", "still", **{variable: path})
    assert (done.returncode, done.stdout) == (Exit.OK, "still\n")
    assert done.stderr.startswith("treadle run: not gated: ")
    assert path in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_everyone_may_write_is_no_place_for_a_turnstile(world: World) -> None:
    world.folder.chmod(0o777)
    done = run(world, "--", "/bin/echo", "still")
    assert (done.returncode, done.stdout) == (Exit.OK, "still\n")
    assert done.stderr.startswith(f"treadle run: not gated: everyone may write {world.folder}")


def test_a_gate_library_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_GATE_LIBRARY", "/nowhere/gate.so")
    with pytest.raises(TurnstileError, match=r"no launch gate at /nowhere/gate\.so"):
        gate_library_path()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--priority", "urgent"], "--priority: "),
        (["--memory", "lots"], "'lots' is no amount of memory"),
        (["--memory", "0"], "above 0"),
    ],
)
def test_a_wrong_option_starts_nothing(world: World, options: list[str], says: str) -> None:
    done = run(world, *options, "--", "/bin/echo", "never")
    assert (done.returncode, done.stdout) == (Exit.FAILED, "")
    assert done.stderr.startswith("treadle: ")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("4096", 4096),
        ("10GiB", 10 * 2**30),
        ("800M", 800 * 10**6),
        ("1.5 gb", 1_500_000_000),
        ("2ti", 2 * 2**40),
    ],
)
def test_amounts_of_memory(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "10GiBs", "1.GiB", "0.1"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(TreadleError):
        parse_bytes(text)


def test_libraries_that_were_preloaded_stay_behind_the_gate(tmp_path: Path) -> None:
    gate = tmp_path / "gate.so"
    options = GateOptions(priority=Priority.NORMAL, folder=tmp_path, library=gate)
    for before, after in (
        ("", f"{gate}"),
        ("a.so b.so", f"{gate}:a.so:b.so"),
        (f"a.so:{gate}", f"{gate}:a.so"),
    ):
        assert gate_environment(options, {"LD_PRELOAD": before})["LD_PRELOAD"] == after
