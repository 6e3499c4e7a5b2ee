"""Who may do what to a job, and what is told of it."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from treadle.errors import ForbiddenError, NotFoundError
from treadle.programs.jobs import Caller
from treadle.types import TaskState

from .queues import ME, Queue

FOREVER = "sleep 1000"


async def test_nobody_may_touch_the_jobs_of_others_but_the_owner(queue: Queue) -> None:
    stranger = Caller(uid=ME.uid + 1, user="stranger")
    number = await queue.one(FOREVER)
    with pytest.raises(ForbiddenError, match="job 1 is of user me"):
        await queue.jobs.cancel(number, stranger)
    with pytest.raises(ForbiddenError, match="job 1 is of user me"):
        await queue.jobs.hold(number, stranger, on=True)
    assert (await queue.jobs.get(number)).id == number
    same = Caller(uid=ME.uid)
    assert (await queue.jobs.cancel(number, same)).cancelled


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
async def test_a_job_runs_as_who_submitted_it(queue: Queue) -> None:
    other = Caller(uid=65534, user="nobody")
    job = await queue.run("id -u; id -g", caller=other)
    assert job.state is TaskState.FINISHED
    assert queue.jobs.log_files(1, 1)[1].read_text().split()[0] == "65534"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
async def test_a_user_whom_nobody_knows_has_no_jobs(queue: Queue) -> None:
    job = await queue.run("true", caller=Caller(uid=4_242_424))
    assert job.state is TaskState.FAILED
    assert job.reason == "it could not be started: there is no user 4242424 on this machine"


async def test_who_is_not_root_runs_no_jobs_of_others(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ForbiddenError, match=r"user 1000, .* not as user 1001: treadle run"):
        await queue.submit("true", caller=Caller(uid=1001))
    assert await queue.jobs.newest(limit=1) == []


async def test_what_others_queued_when_the_node_was_roots_is_not_started_as_its_user(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await queue.one("sleep 1000")
    number = await queue.one("true", caller=Caller(uid=ME.uid + 1), after=(held,))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionError, match="the node runs as user 1000, not as root"):
        queue.starter.task(await queue.jobs.get(number))


# Look and wait.


@pytest.mark.parametrize("number", [0, 7, 2**63, 2**80])
async def test_a_job_that_is_not_there(queue: Queue, number: int) -> None:
    for asked in (
        queue.jobs.get(number),
        queue.jobs.wait(number, 1),
        queue.jobs.cancel(number, ME),
        queue.jobs.hold(number, ME, on=True),
    ):
        with pytest.raises(NotFoundError, match=f"there is no job {number}"):
            await asked


async def test_who_waits_too_short_is_told_how_far_it_is(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    assert (await queue.jobs.wait(number, 0.01)).state is TaskState.RUNNING
    assert (await queue.jobs.wait(number, 0)).state is TaskState.RUNNING


async def test_many_may_wait_for_one(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    waiting = [asyncio.ensure_future(queue.over(number)) for _ in range(20)]
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.cancel(number, ME)
    assert {job.state for job in await asyncio.gather(*waiting)} == {TaskState.CANCELLED}


async def test_the_newest_come_first_as_they_are_now(queue: Queue) -> None:
    done, running = await queue.run("true"), await queue.one(FOREVER)
    await queue.comes_to(running, TaskState.RUNNING)
    found = await queue.jobs.newest(limit=10)
    assert [(job.id, job.state) for job in found] == [(2, "running"), (1, "finished")]
    assert [job.id for job in await queue.jobs.newest(limit=10, states=["finished"])] == [done.id]
    assert [job.id for job in await queue.jobs.newest(limit=1)] == [2]
    assert [job.id for job in await queue.jobs.newest(limit=9, before=2)] == [1]
    assert await queue.jobs.newest(limit=9, uid=ME.uid + 1) == []


@pytest.mark.parametrize("jump", [1e9, -1e9])
async def test_a_clock_that_is_set_disturbs_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    number = await queue.one("sleep 0.2", time_limit_seconds=1000)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    late = await queue.one("true", after=(number,))
    assert (await queue.over(late)).state is TaskState.FINISHED
    assert (await queue.jobs.get(number)).state is TaskState.FINISHED
