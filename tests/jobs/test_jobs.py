"""What callers may ask about jobs, with real supervisors."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from treadle.errors import InvalidRequestError
from treadle.types import TaskState

from .conftest import MakeQueue
from .queues import GIB, ME, Queue
from .supervisor.harness import until

FOREVER = "sleep 1000"


async def test_a_job_runs_and_is_finished(queue: Queue, folder: Path) -> None:
    (job,) = await queue.submit(f"echo hello; echo $TREADLE_JOB > {folder}/mark")
    assert (job.id, job.user, job.uid) == (1, "me", ME.uid)
    ended = await queue.over(1)
    assert (ended.state, ended.reason, ended.exit_code) == (TaskState.FINISHED, "", 0)
    assert ended.devices == ("cpu",)
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert ended.submitted_at <= ended.started_at <= ended.ended_at
    assert (folder / "mark").read_text() == "1.1\n"
    assert queue.jobs.log_files(1, 1)[1].read_text() == "hello\n"
    states = await queue.states(1)
    assert (states[:2], states[-1]) == (["queued", "starting"], "finished")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "signal 9"),
        ("exec no-such-program 2>&-", "exit code 127"),
    ],
)
async def test_a_job_that_fails_says_how(queue: Queue, command: str, reason: str) -> None:
    job = await queue.run(command)
    assert (job.state, job.reason) == (TaskState.FAILED, reason)


async def test_many_jobs_run_each_once(queue: Queue, folder: Path) -> None:
    script = f"echo $TREADLE_ARRAY_INDEX >> {folder}/ran"
    jobs = await queue.submit(script, array=range(5, 45), share=0)
    assert [job.id for job in jobs] == [*range(1, 41)]
    for job in jobs:
        assert (await queue.over(job.id)).state is TaskState.FINISHED
    ran = sorted(map(int, (folder / "ran").read_text().split()))
    assert ran == [*range(5, 45)]


async def test_a_job_that_no_array_has_made_has_no_index(queue: Queue) -> None:
    env = {"PATH": os.environ["PATH"], "TREADLE_ARRAY_INDEX": "7", "TREADLE_JOB": "9.9"}
    await queue.run('echo "[$TREADLE_ARRAY_INDEX] $TREADLE_JOB"', env=env)
    assert queue.jobs.log_files(1, 1)[1].read_text() == "[] 1.1\n"


async def test_a_job_waits_until_there_is_room(queue: Queue) -> None:
    first = await queue.one(FOREVER, share=16)
    second = await queue.one("true", share=2)
    await queue.comes_to(first, TaskState.RUNNING)
    job = await queue.jobs.get(second)
    assert queue.jobs.told(job)["reason"] == "needs 2 cores, most that is free 0"
    assert queue.jobs.counts() == {"running": 1, "queued": 1}
    await queue.jobs.cancel(first, ME)
    assert (await queue.over(second)).state is TaskState.FINISHED
    assert queue.jobs.counts() == {}


async def test_what_never_fits_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidRequestError, match="never start here: needs 65 GiB, the largest"):
        await queue.submit("true", memory_bytes=65 * GIB)
    with pytest.raises(InvalidRequestError, match="needs 1 GPU, there are none here"):
        await queue.submit("true", gpus=1)
    with pytest.raises(InvalidRequestError, match="needs 17 cores, the CPU has 16"):
        await queue.submit("true", share=17)


async def test_the_urgent_go_first(queue: Queue, folder: Path) -> None:
    blocker = await queue.one(FOREVER, share=16)
    await queue.comes_to(blocker, TaskState.RUNNING)
    numbers = [
        await queue.one(f"echo {priority} >> {folder}/ran", share=16, priority=priority)
        for priority in ("background", "normal", "critical")
    ]
    await queue.jobs.cancel(blocker, ME)
    for number in numbers:
        await queue.over(number)
    assert (folder / "ran").read_text().split() == ["critical", "normal", "background"]


async def test_memory_is_bounded_without_a_gpu(queue: Queue) -> None:
    await queue.run("ulimit -v", memory_bytes=GIB)
    assert queue.jobs.log_files(1, 1)[1].read_text() == f"{GIB >> 10}\n"


# Retries.


async def test_a_job_is_tried_again_until_it_succeeds(queue: Queue, folder: Path) -> None:
    script = f"echo $TREADLE_JOB >> {folder}/ran; [ $(wc -l < {folder}/ran) = 3 ]"
    job = await queue.run(script, retries=5)
    assert (job.state, job.attempt, job.failures) == (TaskState.FINISHED, 3, 2)
    assert (folder / "ran").read_text().split() == ["1.1", "1.2", "1.3"]
    history = await queue.jobs.history(job.id)
    assert ("queued", "attempt 1 failed: exit code 1") in [entry[1:] for entry in history]


async def test_a_job_is_tried_no_more_often_than_it_may_be(queue: Queue, folder: Path) -> None:
    job = await queue.run(f"echo x >> {folder}/ran; exit 4", retries=2)
    assert (job.state, job.reason, job.failures) == (TaskState.FAILED, "exit code 4", 3)
    assert (folder / "ran").read_text().count("x") == 3


async def test_a_job_over_its_time_limit_is_not_tried_again(queue: Queue) -> None:
    job = await queue.run(FOREVER, time_limit_seconds=0.1, retries=5)
    assert (job.state, job.attempt) == (TaskState.FAILED, 1)
    assert job.reason == "its time limit of 0.1 s was over"


# One after another.


async def test_a_job_waits_for_those_that_it_comes_after(queue: Queue, folder: Path) -> None:
    gate = folder / "gate"
    first = await queue.one(f"while [ ! -e {gate} ]; do sleep 0.01; done; echo 1 >> {folder}/ran")
    second = await queue.one(f"echo 2 >> {folder}/ran", after=(first,))
    third = await queue.one(f"echo 3 >> {folder}/ran", after=(first, second))
    await queue.comes_to(first, TaskState.RUNNING)
    told = queue.jobs.told(await queue.jobs.get(third))
    assert (told["state"], told["reason"]) == ("queued", f"waits for job {first}, {second}")
    gate.touch()
    assert (await queue.over(third)).state is TaskState.FINISHED
    assert (folder / "ran").read_text().split() == ["1", "2", "3"]


@pytest.mark.parametrize("share", [16, 0])
async def test_who_waits_for_one_that_fails_is_cancelled(queue: Queue, share: int) -> None:
    first = await queue.one("exit 1", share=share)
    second = await queue.one("true", after=(first,))
    third = await queue.one("true", after=(second,))
    assert await queue.outcome(first) == (TaskState.FAILED, "exit code 1")
    cancelled = TaskState.CANCELLED
    assert await queue.outcome(second) == (cancelled, f"needs job {first}, which is failed")
    assert await queue.outcome(third) == (cancelled, f"needs job {second}, which is cancelled")


async def test_who_comes_after_one_that_is_over_need_not_wait(queue: Queue) -> None:
    good, bad = await queue.run("true"), await queue.run("false")
    assert (await queue.run("true", after=(good.id,))).state is TaskState.FINISHED
    late = await queue.run("true", after=(good.id, bad.id))
    assert late.state is TaskState.CANCELLED
    assert late.reason == f"needs job {bad.id}, which is failed"
    assert late.attempt == 0


@pytest.mark.parametrize("number", [1, 5, 2**63 - 1])
async def test_a_job_comes_only_after_earlier_ones(queue: Queue, number: int) -> None:
    # So there is no circle: nobody knows the number of a job before it is queued.
    with pytest.raises(InvalidRequestError, match=f"after: there is no job {number}; allowed"):
        await queue.submit("true", after=(number,))
    assert await queue.jobs.newest(limit=10) == []


async def test_a_long_chain_falls_as_one(queue: Queue) -> None:
    first = await queue.one(FOREVER)
    number = first
    for _ in range(2000):
        number = await queue.one("true", after=(number,))
    await queue.jobs.cancel(first, ME)
    state, reason = await queue.outcome(number)
    assert (state, reason) == (TaskState.CANCELLED, f"needs job {number - 1}, which is cancelled")
    assert queue.jobs.counts() == {}


async def test_many_that_need_one_job_fall_with_it_and_leave_others_their_turn(
    queue: Queue,
) -> None:
    first = await queue.one(FOREVER)
    many = await queue.submit("true", array=range(5000), after=(first,))
    await queue.jobs.cancel(first, ME)
    turns = 0
    while not many[-1].state.over:
        turns += 1
        assert {queue.jobs.told(job)["reason"] for job in (many[0], many[-1])} <= {
            f"waits for job {first}",
            f"needs job {first}, which is cancelled",
        }
        await asyncio.sleep(0)
    assert turns > 50
    assert {job.state for job in many} == {TaskState.CANCELLED}
    assert {job.attempt for job in many} == {0}


async def test_who_needs_two_jobs_does_not_start_when_one_has_failed(queue: Queue) -> None:
    bad, good = await queue.one(FOREVER), await queue.one(FOREVER)
    many = await queue.submit("true", array=range(500), after=(bad, good))
    for number in (bad, good):
        await queue.comes_to(number, TaskState.RUNNING)
    ended = [queue.jobs.cancel(bad, ME), queue.jobs.end(good, "enough")]
    await asyncio.gather(*ended)
    assert {(await queue.over(job.id)).attempt for job in many} == {0}


@pytest.mark.parametrize("command", ["exit 0", "exit 1"])
async def test_a_job_that_ends_while_another_is_queued_after_it(
    queue: Queue, folder: Path, command: str
) -> None:
    gate = folder / "gate"
    first = await queue.one(f"while [ ! -e {gate} ]; do sleep 0.01; done; {command}")
    old = await queue.run("true")
    await queue.comes_to(first, TaskState.RUNNING)
    disk = queue.hold_disk()
    queued = asyncio.ensure_future(queue.one("true", after=(old.id, first)))
    await asyncio.sleep(0)
    job = await queue.jobs.get(first)
    gate.touch()
    await until(lambda: job.state.over, "it ends")
    disk.set()
    late = await queue.over(await queued)
    assert late.state is (TaskState.FINISHED if command == "exit 0" else TaskState.CANCELLED)


# A large job among small ones.


async def test_the_cpu_is_kept_free_for_a_large_job_that_has_waited_for_long(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(reserve_after_seconds=0)
    first = await queue.one(FOREVER, share=10)
    await queue.comes_to(first, TaskState.RUNNING)
    large = await queue.jobs.get(await queue.one(FOREVER, share=16))
    small = await queue.jobs.get(await queue.one("true", share=1))
    kept = f"the CPU is kept free for job {large.id}"
    await until(lambda: queue.jobs.told(small)["reason"] == kept, kept)
    assert queue.jobs.told(large)["reason"].endswith("; the CPU is kept free for it")
    (told,) = [one for one in queue.jobs.overview(9)["waiting"] if one["id"] == small.id]
    assert told["reason"] == kept
    urgent = await queue.run("true", share=1, priority="critical")
    assert urgent.state is TaskState.FINISHED, "what is more urgent does not wait"
    await queue.jobs.cancel(first, ME)
    await queue.comes_to(large.id, TaskState.RUNNING)
    await queue.jobs.cancel(large.id, ME)
    assert (await queue.over(small.id)).state is TaskState.FINISHED


async def test_nothing_is_kept_free_while_a_paused_job_is_in_the_way(
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(reserve_after_seconds=0)
    first = await queue.one(FOREVER, share=10)
    await queue.comes_to(first, TaskState.RUNNING)
    await queue.one(FOREVER, share=16)
    small = await queue.one("true", share=1)
    await queue.jobs.hold(first, ME, on=True)
    assert (await queue.over(small)).state is TaskState.FINISHED


# Cancel.


async def test_a_queued_job_that_is_cancelled_never_runs(queue: Queue, folder: Path) -> None:
    await queue.one(FOREVER, share=16)
    number = await queue.one(f"touch {folder}/ran")
    job = await queue.jobs.cancel(number, ME)
    assert (job.state, job.reason, job.attempt) == (TaskState.CANCELLED, "cancelled by me", 0)
    assert await queue.jobs.cancel(number, ME) == job
    assert not (folder / str(number)).exists()


async def test_a_running_job_that_is_cancelled_is_ended(queue: Queue) -> None:
    number = await queue.one(FOREVER, retries=5)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.cancel(number, ME)
    assert await queue.outcome(number) == (TaskState.CANCELLED, "cancelled by me")
    assert (await queue.jobs.get(number)).attempt == 1


async def test_a_job_that_is_cancelled_before_its_start_is_on_the_disk_never_runs(
    queue: Queue, folder: Path
) -> None:
    number = await queue.one(f"touch {folder}/ran")
    disk = queue.hold_disk()
    await queue.comes_to(number, TaskState.STARTING)
    cancelling = asyncio.ensure_future(queue.jobs.cancel(number, ME))
    await asyncio.sleep(0)
    disk.set()
    await cancelling
    assert (await queue.over(number)).state is TaskState.CANCELLED
    assert not (folder / str(number)).exists()


async def test_jobs_that_are_cancelled_at_any_moment_end_and_the_queue_goes_on(
    queue: Queue,
) -> None:
    numbers = []
    for turns in range(60):
        number = await queue.one(FOREVER, share=0)
        numbers.append(number)
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns >= 40:
            await queue.comes_to(number, TaskState.STARTING)
            await asyncio.sleep((turns - 40) * 0.003)
        await queue.jobs.cancel(number, ME)
    for number in numbers:
        assert (await queue.over(number)).state is TaskState.CANCELLED
    assert (await queue.run("true")).state is TaskState.FINISHED


async def test_a_job_that_is_over_stays_what_it_is(queue: Queue) -> None:
    job = await queue.run("true")
    assert (await queue.jobs.cancel(job.id, ME)).state is TaskState.FINISHED


# Hold.


async def test_a_running_job_is_paused_and_goes_on(queue: Queue) -> None:
    number = await queue.one("trap 'exit 0' USR1; while :; do sleep 0.01; done")
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.hold(number, ME, on=True)
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.hold(number, ME, on=False)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.cancel(number, ME)
    await queue.over(number)
    states = await queue.states(number)
    # That somebody wants its end is noted before it comes.
    assert states[-4:] == ["paused", "running", "running", "cancelled"]


async def test_however_often_it_is_held_it_ends_as_it_was_asked_to_last(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    for on in (True, False) * 20:
        await queue.jobs.hold(number, ME, on=on)
    await queue.comes_to(number, TaskState.RUNNING)
    for on in (True, False) * 20:
        await queue.jobs.hold(number, ME, on=on)
        await asyncio.sleep(0.001)
    await queue.jobs.hold(number, ME, on=True)
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.hold(number, ME, on=False)
    await queue.jobs.cancel(number, ME)
    await queue.over(number)


async def test_a_held_job_is_not_started_and_others_pass_it(queue: Queue) -> None:
    blocker = await queue.one(FOREVER, share=16)
    held, other = await queue.one("true"), await queue.one("true")
    await queue.jobs.hold(held, ME, on=True)
    await queue.jobs.cancel(blocker, ME)
    await queue.over(other)
    told = queue.jobs.told(await queue.jobs.get(held))
    assert (told["state"], told["reason"], told["held"]) == ("queued", "held", True)
    await queue.jobs.hold(held, ME, on=False)
    assert (await queue.over(held)).state is TaskState.FINISHED


async def test_a_held_job_can_be_cancelled(queue: Queue) -> None:
    running = await queue.one(FOREVER)
    await queue.comes_to(running, TaskState.RUNNING)
    await queue.jobs.hold(running, ME, on=True)
    await queue.comes_to(running, TaskState.PAUSED)
    await queue.jobs.cancel(running, ME)
    assert (await queue.over(running)).state is TaskState.CANCELLED


async def test_what_is_over_cannot_be_held(queue: Queue) -> None:
    job = await queue.run("true")
    with pytest.raises(InvalidRequestError, match="job 1 is over: finished"):
        await queue.jobs.hold(job.id, ME, on=True)
