"""What plans have done to jobs, beside what their owners want."""

from __future__ import annotations

from treadle.types import Action, ActionKind, Plan, TaskState

from .queues import ME, Queue

FOREVER = "sleep 1000"


def plan(kind: ActionKind, number: int, reason: str = "") -> Plan:
    return Plan((Action(kind, number, reason=reason),))


async def test_a_plan_pauses_a_job_and_lets_it_go_on(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.execute(plan(ActionKind.PAUSE, number, "chat needs its GPU"))
    await queue.comes_to(number, TaskState.PAUSED)
    assert not (await queue.jobs.get(number)).held
    await queue.jobs.execute(plan(ActionKind.RESUME, number))
    await queue.comes_to(number, TaskState.RUNNING)


async def test_what_its_owner_has_paused_no_plan_lets_go(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.execute(plan(ActionKind.PAUSE, number, "chat needs its GPU"))
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.hold(number, ME, on=True)
    await queue.jobs.execute(plan(ActionKind.RESUME, number))
    other = await queue.one("true", share=0)
    await queue.over(other)  # the queue has gone on meanwhile
    assert (await queue.jobs.get(number)).state is TaskState.PAUSED
    await queue.jobs.hold(number, ME, on=False)
    await queue.comes_to(number, TaskState.RUNNING)


async def test_what_a_plan_has_paused_its_owner_does_not_let_go(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.hold(number, ME, on=True)
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.execute(plan(ActionKind.PAUSE, number, "chat needs its GPU"))
    await queue.jobs.hold(number, ME, on=False)
    other = await queue.one("true", share=0)
    await queue.over(other)
    assert (await queue.jobs.get(number)).state is TaskState.PAUSED
    await queue.jobs.execute(plan(ActionKind.RESUME, number))
    await queue.comes_to(number, TaskState.RUNNING)


async def test_a_job_that_a_plan_stops_is_queued_again_and_has_not_failed(queue: Queue) -> None:
    number = await queue.one(FOREVER)
    await queue.comes_to(number, TaskState.RUNNING)
    await queue.jobs.execute(plan(ActionKind.STOP, number, "its GPU is wanted"))
    job = await queue.jobs.get(number)
    while job.attempt < 2:
        await queue.jobs.wait(number, 0.01)
    await queue.comes_to(number, TaskState.RUNNING)
    assert (job.attempt, job.failures) == (2, 0)
    history = [reason for _, _, reason in await queue.jobs.history(number)]
    assert "its GPU is wanted" in history


async def test_steps_for_jobs_that_have_gone_on_are_left_out(queue: Queue) -> None:
    over = (await queue.run("true")).id
    running = await queue.one(FOREVER)
    await queue.comes_to(running, TaskState.RUNNING)
    for number in (over, running, 999):
        await queue.jobs.execute(plan(ActionKind.START, number))
    for kind in ActionKind:
        await queue.jobs.execute(plan(kind, over, "why"))
    assert (await queue.jobs.get(over)).state is TaskState.FINISHED
    assert (await queue.jobs.get(running)).attempt == 1
