"""What becomes of jobs when nodes end, supervisors are killed and disks are full."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from treadle.errors import InvalidRequestError, UnavailableError
from treadle.programs.attempt import Attempt, Task
from treadle.programs.background import Background
from treadle.programs.leftovers import end_marked
from treadle.programs.spawner import Spawner
from treadle.programs.spec import Job
from treadle.types import TaskState

from .conftest import MakeQueue
from .queues import ME, Queue
from .supervisor.harness import Watched, is_alive, until

FOREVER = "sleep 1000"


LOOP = "while :; do sleep 0.01; done"
INTERRUPTED = "its supervisor was told to end, as when the machine is shut down"


async def supervisor_of(queue: Queue, number: int) -> int:
    """The process that watches a job."""
    job = await queue.comes_to(number, TaskState.RUNNING)
    return await Watched(queue.folder / str(number) / str(job.attempt)).supervisor()


# A node ends, and another one begins.


async def test_a_job_outlives_the_node_and_is_taken_up_by_the_next(
    make_queue: MakeQueue, folder: Path
) -> None:
    gate = folder / "gate"
    first = await make_queue()
    number = await first.one(f"echo $$ >> {folder}/ran; while [ ! -e {gate} ]; do sleep 0.01; done")
    await first.comes_to(number, TaskState.RUNNING)
    await until((folder / "ran").exists, "it runs")
    second = await make_queue()
    await second.comes_to(number, TaskState.RUNNING)
    gate.touch()
    assert await second.outcome(number) == (TaskState.FINISHED, "")
    assert len((folder / "ran").read_text().split()) == 1


async def test_a_job_that_ends_while_there_is_no_node_is_known_by_the_next(
    make_queue: MakeQueue, folder: Path
) -> None:
    gate = folder / "gate"
    first = await make_queue()
    number = await first.one(f"while [ ! -e {gate} ]; do sleep 0.01; done; exit 5")
    after = await first.one("true", after=(number,))
    pid = await supervisor_of(first, number)
    await first.close()
    gate.touch()
    await until(lambda: not is_alive(pid), "it has ended")
    second = await make_queue()
    assert await second.outcome(number) == (TaskState.FAILED, "exit code 5")
    assert (await second.over(after)).state is TaskState.CANCELLED


async def test_the_queue_is_as_it_was(make_queue: MakeQueue) -> None:
    first = await make_queue()
    blocker = await first.one(FOREVER, share=16)
    await first.comes_to(blocker, TaskState.RUNNING)
    held, waiting, late = await first.one("true"), await first.one("true"), await first.one("true")
    after = await first.one("true", after=(waiting,))
    await first.jobs.hold(held, ME, on=True)
    await first.jobs.cancel(late, ME)
    second = await make_queue()
    assert second.jobs.counts() == {"running": 1, "queued": 3}
    await second.comes_to(blocker, TaskState.RUNNING)
    told = second.jobs.told(await second.jobs.get(after))
    assert told["reason"] == f"waits for job {waiting}"
    await second.jobs.cancel(blocker, ME)
    assert (await second.over(after)).state is TaskState.FINISHED
    assert second.jobs.told(await second.jobs.get(held))["reason"] == "held"


async def test_what_was_wanted_of_a_job_while_nobody_heard_is_passed_on_later(
    make_queue: MakeQueue, folder: Path
) -> None:
    first = await make_queue()
    number = await first.one(FOREVER)
    await first.comes_to(number, TaskState.RUNNING)
    await first.jobs.hold(number, ME, on=True)
    second = await make_queue()
    await second.comes_to(number, TaskState.PAUSED)
    await second.jobs.hold(number, ME, on=False)
    third = await make_queue()
    await third.comes_to(number, TaskState.RUNNING)
    await third.jobs.cancel(number, ME)
    fourth = await make_queue()
    assert await fourth.outcome(number) == (TaskState.CANCELLED, "cancelled by me")


async def test_a_start_that_an_earlier_node_only_wrote_down_is_made_once(
    make_queue: MakeQueue, folder: Path
) -> None:
    first = await make_queue()
    number = await first.one(f"echo $TREADLE_JOB >> {folder}/ran", share=0)
    job = await first.jobs.get(number)
    disk = first.hold_disk()
    await first.comes_to(number, TaskState.STARTING)
    closing = asyncio.ensure_future(first.close())
    await asyncio.sleep(0)
    disk.set()
    await closing
    assert not (folder / "ran").exists()
    second = await make_queue()
    assert (await second.over(number)).state is TaskState.FINISHED
    assert (folder / "ran").read_text() == "1.2\n"
    assert job.attempt == 1


# A supervisor is killed.


async def test_a_job_whose_supervisor_is_killed_is_lost_with_all_of_it(
    queue: Queue, folder: Path
) -> None:
    number = await queue.one(f"setsid {FOREVER} & echo $! $$ > {folder}/pids; wait")
    pid = await supervisor_of(queue, number)
    await until(lambda: (folder / "pids").exists() and (folder / "pids").read_text(), "it runs")
    os.kill(pid, signal.SIGKILL)
    state, reason = await queue.outcome(number)
    assert state is TaskState.LOST
    assert reason.startswith("its supervisor was killed; ")
    assert not any(is_alive(int(word)) for word in (folder / "pids").read_text().split())
    job = await queue.jobs.get(number)
    assert (job.exit_code, job.signal) == (None, None)


async def test_a_lost_job_is_tried_again_if_it_may_be(queue: Queue, folder: Path) -> None:
    number = await queue.one(f"[ -e {folder}/ran ] && exit 0; touch {folder}/ran; {FOREVER}",
                             retries=1)  # fmt: skip
    pid = await supervisor_of(queue, number)
    await until((folder / "ran").exists, "it runs")
    os.kill(pid, signal.SIGKILL)
    job = await queue.over(number)
    assert (job.state, job.attempt, job.failures) == (TaskState.FINISHED, 2, 1)


async def test_a_supervisor_that_was_killed_while_there_was_no_node(
    make_queue: MakeQueue,
) -> None:
    first = await make_queue()
    number = await first.one(FOREVER)
    pid = await supervisor_of(first, number)
    await first.close()
    os.kill(pid, signal.SIGKILL)
    second = await make_queue()
    assert (await second.over(number)).state is TaskState.LOST


# What cannot be started.


async def test_a_job_that_is_ended_with_the_machine_is_lost(queue: Queue) -> None:
    # Whatever it makes of the signal: it was not done.
    for script in (
        FOREVER,
        f"trap 'exit 0' TERM; echo; {FOREVER} & wait",
        "trap 'exit 3' TERM; " + LOOP,
    ):
        number = await queue.one(script)
        await queue.comes_to(number, TaskState.RUNNING)
        os.kill(await supervisor_of(queue, number), signal.SIGTERM)
        state, reason = await queue.outcome(number)
        assert (state, reason) == (TaskState.LOST, INTERRUPTED)


async def test_that_costs_no_retry_if_there_is_one_left(
    make_queue: MakeQueue, folder: Path
) -> None:
    gate = folder / "gate"
    first = await make_queue()
    number = await first.one(f"[ -e {gate} ] && exit 1; {FOREVER}", retries=1)
    await first.comes_to(number, TaskState.RUNNING)
    pid = await supervisor_of(first, number)
    await first.close()
    os.kill(pid, signal.SIGTERM)
    await until(lambda: not is_alive(pid), "its supervisor has ended")
    second = await make_queue()
    await until((folder / str(number) / "2" / "begun").exists, "it is tried again")
    await second.comes_to(number, TaskState.RUNNING)
    job = await second.jobs.get(number)
    assert (job.attempt, job.failures) == (2, 0)
    assert INTERRUPTED in [why for _, _, why in await second.jobs.history(number)]
    gate.touch()
    os.kill(await supervisor_of(second, number), signal.SIGTERM)
    assert await second.outcome(number) == (TaskState.FAILED, "exit code 1")
    assert job.attempt == 4, "one for each interruption, the first failure, and its retry"


async def test_a_node_that_is_about_to_end_starts_nothing_more(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    queue.jobs.drain()
    late = await queue.jobs.get(await queue.one("true"))
    await queue.jobs.cancel(number, ME)
    await queue.over(number)
    assert (late.state, late.attempt) == (TaskState.QUEUED, 0)


async def test_a_supervisor_that_never_starts_the_job_is_not_asked_for_ever(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    number = await queue.one("true")
    job = await queue.over(number)
    assert (job.state, job.attempt) == (TaskState.FAILED, 3)
    assert job.reason.startswith("its supervisor could not start it")
    monkeypatch.undo()
    assert (await queue.run("true")).state is TaskState.FINISHED


async def test_an_attempt_without_a_place_for_its_folder_has_failed(
    queue: Queue, folder: Path
) -> None:
    (folder / "1").touch()
    state, reason = await queue.outcome(await queue.one("true"))
    assert state is TaskState.FAILED
    assert reason.startswith("it could not be started: ")
    assert (await queue.run("true")).state is TaskState.FINISHED


async def test_a_start_that_fails_for_a_while_is_made_later(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = Attempt.start, [errno.ENOSPC, errno.EAGAIN]

    def failing(attempt: Attempt, task: Task, spawner: Spawner) -> None:
        if failures:
            number = failures.pop()
            raise OSError(number, os.strerror(number))
        start(attempt, task, spawner)

    monkeypatch.setattr(Attempt, "start", failing)
    job = await queue.run("true")
    assert (job.state, job.attempt, job.failures) == (TaskState.FINISHED, 3, 0)


async def test_an_error_in_the_middle_of_the_queue_is_logged_and_the_queue_goes_on(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = queue.starter.task

    def failing(job: Job) -> Task:
        if job.id == 1:
            raise RuntimeError("never seen before")
        return task(job)

    monkeypatch.setattr(queue.starter, "task", failing)
    state, reason = await queue.outcome(await queue.one("true"))
    assert (state, reason) == (TaskState.FAILED, "it could not be started: never seen before")
    assert (await queue.run("true")).state is TaskState.FINISHED


async def test_a_task_that_fails_beside_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("nobody waits for this")

    background = Background()
    with caplog.at_level(logging.ERROR, "treadle.jobs"):
        await asyncio.wait([background.spawn(fail())])
        await background.close()
    assert "nobody waits for this" in caplog.text


# The disk is full.


async def test_a_full_disk_refuses_new_jobs_and_keeps_what_was_accepted(
    make_queue: MakeQueue, folder: Path
) -> None:
    queue = await make_queue()
    gate = folder / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.01; done"
    running = await queue.one(f"{wait}; exit 6", share=16)
    waiting = await queue.one("true", share=16)
    await queue.comes_to(running, TaskState.RUNNING)
    await queue.fill_disk()
    with pytest.raises(UnavailableError, match="cannot be written: no such function: disk_is_full"):
        await queue.submit("true")
    gate.touch()
    ended = await queue.comes_to(running, TaskState.FAILED)
    assert (await queue.jobs.wait(running, 0.05)) is ended
    assert running in [job.id for job in await queue.jobs.newest(limit=5)]
    await queue.empty_disk()
    assert await queue.outcome(running) == (TaskState.FAILED, "exit code 6")
    assert (await queue.over(waiting)).state is TaskState.FINISHED
    second = await make_queue()
    assert await second.outcome(running) == (TaskState.FAILED, "exit code 6")
    assert [job.id for job in await second.jobs.newest(limit=5)] == [waiting, running]


async def test_an_end_that_was_never_written_is_found_by_the_next_node(
    make_queue: MakeQueue, folder: Path
) -> None:
    first = await make_queue()
    gate = folder / "gate"
    number = await first.one(f"while [ ! -e {gate} ]; do sleep 0.01; done; exit 6")
    await first.comes_to(number, TaskState.RUNNING)
    await first.fill_disk()
    gate.touch()
    await first.comes_to(number, TaskState.FAILED)
    second = await make_queue()
    assert await second.outcome(number) == (TaskState.FAILED, "exit code 6")


async def test_no_job_is_started_that_is_not_on_the_disk_as_started(
    queue: Queue, folder: Path
) -> None:
    blocker = await queue.one(FOREVER, share=16)
    number = await queue.one(f"echo $TREADLE_JOB >> {folder}/ran", share=16)
    await queue.comes_to(blocker, TaskState.RUNNING)
    await queue.fill_disk()
    with pytest.raises(UnavailableError, match="job 1: the database cannot be written now"):
        await queue.jobs.cancel(blocker, ME)
    await queue.comes_to(blocker, TaskState.CANCELLED)
    job = await queue.jobs.get(number)
    await until(lambda: job.attempt, "it has been tried")
    assert not (folder / "ran").exists()
    await queue.empty_disk()
    assert (await queue.over(number)).state is TaskState.FINISHED
    assert len((folder / "ran").read_text().split()) == 1


async def test_who_hangs_up_while_a_job_is_written_has_submitted_it(
    queue: Queue, folder: Path
) -> None:
    disk = queue.hold_disk()
    submitting = asyncio.ensure_future(queue.one(f"touch {folder}/ran"))
    await asyncio.sleep(0)
    submitting.cancel()
    await asyncio.gather(submitting, return_exceptions=True)
    disk.set()
    await until((folder / "ran").exists, "it runs")
    assert (await queue.over(1)).state is TaskState.FINISHED


async def test_a_queue_that_ends_takes_no_jobs(queue: Queue) -> None:
    await queue.close()
    with pytest.raises((UnavailableError, InvalidRequestError)):
        await queue.submit("true")


async def test_what_a_job_was_is_tidied_once_it_is_over(queue: Queue, folder: Path) -> None:
    await queue.run("echo x; exit 1", retries=1)
    kept = {"log", "ended.json"}
    for attempt in ("1", "2"):
        place = folder / "1" / attempt
        await until(lambda p=place: {f.name for f in p.iterdir()} == kept, "it is tidied")  # type: ignore[misc]


async def test_of_a_job_that_is_tried_again_and_again_the_newest_attempts_are_kept(
    queue: Queue, folder: Path
) -> None:
    place, gate = folder / "1", folder / "gate"
    script = f"[ $TREADLE_JOB != 1.8 ] || while [ ! -e {gate} ]; do sleep 0.01; done; exit 1"
    number = await queue.one(script, retries=8)
    ended = {"log", "ended.json"}

    def files() -> dict[str, set[str]]:
        try:
            return {one.name: {file.name for file in one.iterdir()} for one in place.iterdir()}
        except FileNotFoundError:  # it has not begun, or one was just deleted
            return {}

    def is_tidied() -> bool:
        found = files()
        return (
            found.keys() == set("45678")
            and all(found[name] == ended for name in "4567")
            and found["8"] >= {"begun", "lock", "socket", "task.json"}
        )

    await until(is_tidied, "its older attempts are tidied while it runs")
    gate.touch()
    await queue.over(number)
    await until(lambda: files() == dict.fromkeys("56789", ended), "all are tidied")


async def test_nothing_is_marked_once_all_is_over(queue: Queue) -> None:
    job = await queue.run(f"setsid {FOREVER} & exit 0")
    assert job.reason == "1 processes that it left running were ended"
    assert end_marked(queue.mark(job)) == 0


async def test_jobs_of_another_queue_have_other_marks(queue: Queue, tmp_path: Path) -> None:
    """Both have a job 1: a node must not end what is another's."""
    folder = tmp_path / "other"
    folder.mkdir()
    other = Queue(folder)
    await other.jobs.start()
    try:
        mine, theirs = await queue.run("true"), await other.run("true")
        assert (mine.id, mine.attempt) == (theirs.id, theirs.attempt)
        assert queue.mark(mine) != other.mark(theirs)
    finally:
        await other.clear()
