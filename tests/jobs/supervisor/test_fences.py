"""Who starts a job, who does not, and what is known when a supervisor was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from treadle.programs.attempt import Fate
from treadle.programs.leftovers import end_marked

from .harness import SPAWNER, Watched, is_alive, until

FOREVER = "sleep 1000"


def numbers(watched: Watched) -> list[int]:
    return [int(word) for word in watched.output.split()]


async def test_a_job_dies_with_a_supervisor_that_is_killed(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    pid = await watched.is_running()
    os.kill(await watched.supervisor(), signal.SIGKILL)
    assert await watched.fate() == (Fate.LOST, None)
    await until(lambda: not is_alive(pid), "the job is gone")


async def test_what_a_lost_job_has_started_is_found_by_its_mark(watched: Watched) -> None:
    script = (
        f"setsid {FOREVER} & echo $!\n"
        f"sh -c 'setsid env -i {FOREVER} & echo $!; wait' & echo $!\n"  # drops the mark
        "wait"
    )
    watched.start("sh", "-c", script)
    await watched.is_running()
    await until(lambda: len(watched.output.split()) == 3, "it has started all of it")
    os.kill(await watched.supervisor(), signal.SIGKILL)
    assert (await watched.fate())[0] is Fate.LOST
    assert end_marked(watched.mark) >= 2
    assert not any(is_alive(pid) for pid in numbers(watched))
    assert end_marked(watched.mark) == 0


async def test_what_keeps_forking_is_ended_as_well(watched: Watched) -> None:
    script = "f() { sleep 0.002; f & }; f & while :; do sleep 0.01; done"
    watched.start("sh", "-c", script)
    await watched.is_running()
    os.kill(await watched.supervisor(), signal.SIGKILL)
    await watched.fate()
    end_marked(watched.mark)
    assert end_marked(watched.mark) == 0


async def test_other_processes_are_left_alone(watched: Watched, home: Path) -> None:
    other = Watched(home / "other", watched.mark.partition("=")[2] + "0")
    other.start("sh", "-c", FOREVER)
    pid = await other.is_running()
    assert end_marked(watched.mark) == 0
    assert is_alive(pid)
    other.attempt.order(do="end", reason="enough")
    await other.end()


async def test_where_nothing_was_begun_nothing_begins_later(watched: Watched, home: Path) -> None:
    watched.prepare(watched.task("touch", str(home / "ran")))
    assert watched.attempt.fate() is Fate.NEVER_BEGUN
    assert watched.run_program().returncode == 1
    assert not (home / "ran").exists()
    assert watched.attempt.fate() is Fate.NEVER_BEGUN


async def test_without_a_folder_nothing_was_begun(watched: Watched) -> None:
    assert watched.attempt.fate() is Fate.NEVER_BEGUN
    assert not watched.folder.exists()


async def test_what_was_begun_and_has_no_end_is_lost(watched: Watched, home: Path) -> None:
    watched.prepare(watched.task("touch", str(home / "ran")))
    (watched.folder / "begun").touch()
    assert watched.attempt.fate() is Fate.LOST
    assert watched.run_program().returncode == 1
    assert not (home / "ran").exists()


async def test_an_ended_attempt_is_not_run_again(watched: Watched, home: Path) -> None:
    await watched.run("sh", "-c", f"echo once >> {home}/ran")
    assert watched.run_program().returncode == 1
    assert (home / "ran").read_text() == "once\n"
    assert watched.attempt.fate() is Fate.ENDED


async def test_a_second_supervisor_leaves_the_first_alone(watched: Watched, home: Path) -> None:
    watched.start("sh", "-c", f"echo once >> {home}/ran; {FOREVER}")
    pid = await watched.is_running()
    assert watched.run_program().returncode == 1
    assert is_alive(pid)
    assert watched.attempt.fate() is None
    watched.attempt.order(do="end", reason="enough")
    await watched.end()
    assert (home / "ran").read_text() == "once\n"


async def test_to_look_often_never_keeps_a_supervisor_from_starting(watched: Watched) -> None:
    watched.attempt.start(watched.task("sh", "-c", "echo done"), SPAWNER)
    while not (watched.folder / "ended.json").exists():
        assert watched.attempt.fate() in (None, Fate.ENDED)
    watched.follow()
    assert (await watched.end()).exit_code == 0


async def test_another_node_finds_a_supervisor_by_its_folder(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    await watched.is_running()
    other = Watched(watched.folder)
    other.follow()
    await other.is_running()
    other.attempt.order(do="end", reason="by the other")
    assert (await other.end()).reason == "by the other"
    assert (await watched.end()).reason == "by the other"


async def test_a_supervisor_without_a_task_is_refused_with_its_reason(watched: Watched) -> None:
    watched.folder.mkdir()
    watched.attempt.start(watched.task("true"), SPAWNER)
    await watched.attempt.follow()
    broken = Watched(watched.folder.with_name("2"))
    broken.folder.mkdir()
    assert broken.run_program().returncode == 1
    assert broken.attempt.fate() is Fate.NEVER_BEGUN


async def test_an_end_that_cannot_be_read_is_none(watched: Watched) -> None:
    watched.folder.mkdir()
    for name in ("begun", "ended.json"):
        (watched.folder / name).touch()
    assert watched.attempt.fate() is Fate.ENDED
    assert watched.attempt.ending() is None
