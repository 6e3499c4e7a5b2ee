"""How a process becomes the job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.programs.attempt import User

from .harness import PATH, Watched


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_code_is_kept(watched: Watched, code: int) -> None:
    ending = await watched.run("sh", "-c", f"exit {code}")
    assert (ending.exit_code, ending.signal, ending.told, ending.reason) == (code, None, False, "")
    assert 0 < ending.started_at <= ending.ended_at
    assert ending.memory_bytes > 0


@pytest.mark.parametrize("number", [15, 9, 11])
async def test_the_signal_is_kept(watched: Watched, number: int) -> None:
    ending = await watched.run("sh", "-c", f"kill -{number} $$")
    assert (ending.exit_code, ending.signal) == (None, number)


async def test_a_program_that_is_not_there_is_127(watched: Watched) -> None:
    ending = await watched.run("no-such-program")
    assert (ending.exit_code, ending.reason) == (127, "no-such-program: command not found")
    assert watched.output == "treadle: no-such-program: command not found\n"


async def test_a_program_that_may_not_be_run_is_126(watched: Watched, home: Path) -> None:
    file = home / "file"
    file.write_text("")
    ending = await watched.run(str(file))
    assert (ending.exit_code, ending.reason) == (126, f"{file}: Permission denied")


async def test_a_program_that_is_none_is_126(watched: Watched, home: Path) -> None:
    file = home / "file"
    file.write_text("nothing that can be run")
    file.chmod(0o755)
    ending = await watched.run(str(file))
    assert (ending.exit_code, ending.reason) == (126, f"{file}: Exec format error")


async def test_a_folder_that_is_not_there_is_126(watched: Watched) -> None:
    ending = await watched.run("true", cwd="/no/such/folder")
    assert ending.exit_code == 126
    assert ending.reason == "cannot enter /no/such/folder: No such file or directory"


async def test_what_is_too_long_for_the_system_is_126(watched: Watched) -> None:
    ending = await watched.run("true", env={"A": "x" * (4 << 20)})
    assert (ending.exit_code, ending.reason) == (126, "true: Argument list too long")


async def test_a_limit_that_is_unknown_is_126(watched: Watched) -> None:
    ending = await watched.run("true", limits={"NONSENSE": 1})
    assert ending.exit_code == 126
    assert "RLIMIT_NONSENSE" in ending.reason


async def test_it_runs_in_its_folder_with_its_umask_limits_and_niceness(
    watched: Watched, home: Path
) -> None:
    await watched.run(
        "sh",
        "-c",
        "pwd; umask; ulimit -c; nice",
        cwd=str(home),
        umask=0o027,
        limits={"CORE": 0},
        nice=3,
    )
    assert watched.output.split() == [str(home), "0027", "0", str(os.nice(0) + 3)]


async def test_it_has_the_environment_that_was_given_and_nothing_else(watched: Watched) -> None:
    await watched.run("env", env={"PATH": PATH, "A": "é", "B": ""})
    assert sorted(watched.output.splitlines()) == ["A=é", "B=", f"PATH={PATH}"]


async def test_it_reads_from_nothing_and_has_no_other_file(watched: Watched) -> None:
    await watched.run("sh", "-c", "readlink /proc/self/fd/0; cat; ls /proc/self/fd")
    first, *descriptors = watched.output.split()
    assert first == "/dev/null"
    assert descriptors == ["0", "1", "2", "3"]  # the last is of ls itself


async def test_it_leads_a_session_of_its_own(watched: Watched) -> None:
    await watched.run("sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat")
    assert len(set(watched.output.split())) == 1


async def test_no_signal_is_ignored_or_blocked(watched: Watched) -> None:
    await watched.run("grep", "-E", "SigBlk|SigIgn", "/proc/self/status")
    masks = [int(line.split()[1], 16) for line in watched.output.splitlines()]
    of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33: nobody else can change them
    assert [mask & ~of_the_c_library for mask in masks] == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
async def test_it_runs_as_its_user(watched: Watched) -> None:
    user = User(uid=12345, gid=23456, groups=(34567,))
    await watched.run("sh", "-c", "id -u; id -g; id -G", user=user)
    assert watched.output.split() == ["12345", "23456", "23456", "34567"]
    assert watched.folder.stat().st_mode & 0o077 == 0


async def test_its_program_is_looked_for_in_its_own_path(watched: Watched, home: Path) -> None:
    program = home / "mine"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    await watched.run("mine", env={"PATH": str(home)})
    assert watched.output == "found\n"


async def test_its_environment_is_nobody_elses_to_read(watched: Watched) -> None:
    await watched.run("true", env={"PATH": PATH, "SECRET": "x"})
    assert (watched.folder / "task.json").stat().st_mode & 0o077 == 0
    assert watched.folder.stat().st_mode & 0o077 == 0
