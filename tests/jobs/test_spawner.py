"""The process that forks supervisors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.programs.attempt import Fate
from treadle.programs.spawner import Spawner

from .supervisor.harness import Watched, is_alive, until


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


def start(watched: Watched, spawner: Spawner, *command: str) -> None:
    watched.attempt.start(watched.task(*command), spawner)
    watched.follow()


def files_of(pid: int) -> set[str]:
    """What a process has open, but for sockets; of pipes only that they are some."""
    links = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(str(file.readlink()))
    kept = {link for link in links if not link.startswith(("anon_inode:", "socket:"))}
    return {"pipe:" if link.startswith("pipe:") else link for link in kept}


def variables_of(pid: int) -> set[str]:
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0].decode() for entry in environment if entry}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_supervisors_outlive_it(folder: Path, spawner: Spawner) -> None:
    watched = Watched(folder / "1")
    start(watched, spawner, "sleep", "1000")
    await watched.is_running()
    spawner.close()
    assert watched.attempt.fate() is None
    watched.attempt.order(do="end", reason="enough")
    assert (await watched.end()).signal == 15


async def test_it_is_started_again_if_it_was_killed(folder: Path, spawner: Spawner) -> None:
    first = Watched(folder / "1")
    start(first, spawner, "sleep", "1000")
    await first.is_running()
    process = parent_of(await first.supervisor())
    os.kill(process, signal.SIGKILL)
    await until(lambda: not is_alive(process), "it is gone")
    second = Watched(folder / "2")
    start(second, spawner, "true")  # nobody answers: not even that it has not begun is sure
    assert (await second.fate())[0] is Fate.NEVER_BEGUN
    third = Watched(folder / "3")
    start(third, spawner, "true")
    assert (await third.end()).exit_code == 0
    first.attempt.order(do="end", reason="enough")
    await first.end()


async def test_its_supervisors_are_not_left_as_zombies(folder: Path, spawner: Spawner) -> None:
    watched = Watched(folder / "1")
    start(watched, spawner, "sleep", "1000")
    await watched.is_running()
    pid = await watched.supervisor()
    watched.attempt.order(do="end", reason="enough")
    await watched.end()
    await until(lambda: not Path(f"/proc/{pid}").exists(), "it is waited for")


async def test_supervisors_have_sessions_and_nothing_of_the_nodes(
    folder: Path, spawner: Spawner
) -> None:
    watched = Watched(folder / "1")
    start(watched, spawner, "sleep", "1000")
    await watched.is_running()
    pid = await watched.supervisor()
    place = folder / "1"
    own = {f"{place}/lock", f"{place}/log", f"{place}/supervisor.log"}
    # It looks into /proc now and then.
    await until(lambda: files_of(pid) == {"/dev/null", "pipe:", *own}, "it has nothing else open")
    assert variables_of(pid) == {"PATH", "LC_ALL"}
    assert os.getsid(pid) == pid
    watched.attempt.order(do="end", reason="enough")
    await watched.end()


def test_a_folder_that_is_not_there_is_said(folder: Path, spawner: Spawner) -> None:
    with pytest.raises(FileNotFoundError):
        spawner.start(folder / "nowhere")


def test_a_folder_that_another_supervisor_has_is_said(folder: Path, spawner: Spawner) -> None:
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError) as error:
        spawner.start(folder)
    os.close(lock)
    assert error.value.errno == errno.EAGAIN


def test_a_program_that_is_not_there_is_said(
    folder: Path, spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        spawner.start(folder)


def test_what_comes_when_its_node_ends_starts_no_other_process(
    folder: Path, spawner: Spawner
) -> None:
    spawner.close()
    with pytest.raises(OSError, match="the node is ending"):
        spawner.start(folder)
    assert not (folder / "lock").exists()
