"""Jobs of which a kernel runs for too long: reported, paused or stopped, once for each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle.programs.holding import Gatekeeper, LongLaunch
from treadle.programs.longkernels import describe
from treadle.types import TaskState

from .conftest import MakeQueue
from .queues import ME, Queue
from .supervisor.harness import until

FOREVER = "sleep 1000"
NOTHING_LASTS_LONGER = {"max_kernel_seconds": 1.0}


def launch(seconds: float = 2.5, since_ns: int = 1, **fields: Any) -> LongLaunch:
    known: dict[str, Any] = {"kernel": "spin", "victims": ("chat#3 (99)",)}
    return LongLaunch(
        gpu="GPU-0000", pid=42, since_ns=since_ns, seconds=seconds, **(known | fields)
    )


class Gate(Gatekeeper):
    """What a test says of the turnstiles, and what is asked for there."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.launches: list[LongLaunch] = []
        self.seats = 1
        self.problem = ""
        self.calls: list[str] = []
        self.looks = 0

    def long_launches(self, number: int, gpus: Sequence[str], seconds: float) -> list[LongLaunch]:
        self.looks += 1
        return [one for one in self.launches if one.seconds >= seconds]

    def hold(self, number: int, gpus: Sequence[str]) -> int:
        if not self.calls or self.calls[-1] != "hold":
            self.calls.append("hold")
        return self.seats

    def let_go(self, number: int, gpus: Sequence[str]) -> int:
        self.calls.append("let go")
        return self.seats

    def lock(self, number: int, gpus: Sequence[str]) -> str:
        self.calls.append("lock")
        return self.problem

    def unlock(self, number: int, gpus: Sequence[str]) -> str:
        self.calls.append("unlock")
        return ""


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def queue(make_queue: MakeQueue, gate: Gate) -> Queue:
    return await make_queue(gatekeeper=gate)


async def looked_at_again(gate: Gate) -> None:
    before = gate.looks
    await until(lambda: gate.looks > before + 1, "it is looked at again")


async def reasons(queue: Queue, number: int) -> list[str]:
    return [reason for _, _, reason in await queue.jobs.history(number)]


async def test_it_is_held_and_locked_and_goes_on_when_its_owner_says(
    queue: Queue, gate: Gate
) -> None:
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    job = await queue.comes_to(number, TaskState.PAUSED)
    await until(lambda: "locked by process checkpoint" in job.reason, "it is locked")
    assert "spin, of process 42, has run for 2.5 s, allowed are 1 s" in job.reason
    assert "more urgent and waiting: chat#3 (99)" in job.reason
    assert job.held
    assert gate.calls == ["hold", "lock"]
    await queue.jobs.hold(number, ME, on=False)
    await queue.comes_to(number, TaskState.RUNNING)
    assert gate.calls[-2:] == ["unlock", "let go"]
    await looked_at_again(gate)  # the kernel runs still: it was stated already
    assert job.state is TaskState.RUNNING
    gate.launches = [launch(since_ns=2)]
    await queue.comes_to(number, TaskState.PAUSED)
    assert queue.jobs.long_kernels() == {("GPU-0000", "pause"): 2}


async def test_where_it_cannot_be_locked_it_is_held_and_says_so(queue: Queue, gate: Gate) -> None:
    gate.problem = "process checkpoint does not work under MPS"
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    job = await queue.comes_to(number, TaskState.PAUSED)
    await until(lambda: "held at the gate, not locked: process ch" in job.reason, "it is said")


async def test_critical_work_which_waits_at_no_gate_is_locked_or_stopped(
    queue: Queue, gate: Gate
) -> None:
    gate.problem = "the CUDA driver's library (libcuda.so.1) is not here"
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER, priority="critical")
    job = await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    await until(lambda: "; stopped, not locked: the CUDA driver" in job.reason, "it is said")
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.hold(number, ME, on=False)
    await queue.comes_to(number, TaskState.RUNNING)


async def test_one_that_sits_at_no_gate_any_more_is_stopped_by_signal(
    queue: Queue, gate: Gate
) -> None:
    gate.seats = 0
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch(kernel=None, victims=())]
    job = await queue.comes_to(number, TaskState.PAUSED)
    assert job.reason.startswith("a kernel of unknown name, of process 42")
    assert job.reason.endswith("more urgent and waiting: nobody; stopped: it sits at no gate")
    await queue.jobs.hold(number, ME, on=False)
    await queue.comes_to(number, TaskState.RUNNING)


async def test_report_does_nothing_but_that_and_once(queue: Queue, gate: Gate) -> None:
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER, on_long_kernel="report")
    job = await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    await until(lambda: job.reason == describe(launch(), 1.0), "it is reported")
    gate.launches = [launch(seconds=3.5)]
    await looked_at_again(gate)
    assert job.state is TaskState.RUNNING
    assert queue.jobs.long_kernels() == {("GPU-0000", "report"): 1}
    assert describe(launch(), 1.0) in await reasons(queue, number)
    assert gate.calls == []


async def test_stop_ends_it_for_good(queue: Queue, gate: Gate) -> None:
    limit = {**NOTHING_LASTS_LONGER, "on_long_kernel": "stop", "retries": 3}
    number = await queue.one(FOREVER, **limit)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    job = await queue.over(number)
    assert (job.state, job.attempt) == (TaskState.FAILED, 1)
    assert describe(launch(), 1.0) in job.reason


async def test_one_that_is_cancelled_while_locked_is_let_go_to_end(
    queue: Queue, gate: Gate
) -> None:
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    await queue.comes_to(number, TaskState.PAUSED)
    await queue.jobs.cancel(number, ME)
    await queue.over(number)
    await until(lambda: gate.calls[-2:] == ["unlock", "let go"], "it was let go")


async def test_shorter_kernels_and_jobs_without_a_limit_are_nobody_s_business(
    queue: Queue, gate: Gate
) -> None:
    free = await queue.one(FOREVER)
    number = await queue.one(FOREVER, max_kernel_seconds=3.0)
    for one in (free, number):
        await queue.comes_to(one, TaskState.RUNNING)
    gate.launches = [launch(seconds=2.9)]
    await looked_at_again(gate)
    for one in (free, number):
        assert (await queue.jobs.get(one)).state is TaskState.RUNNING
    assert queue.jobs.long_kernels() == {}


async def test_the_node_leaves_nobody_locked_when_it_ends(
    make_queue: MakeQueue, gate: Gate
) -> None:
    queue = await make_queue(gatekeeper=gate)
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    gate.launches = [launch()]
    job = await queue.comes_to(number, TaskState.PAUSED)
    await until(lambda: "locked by process checkpoint" in job.reason, "it is locked")
    await queue.close()
    assert gate.calls[-1] == "unlock"


async def test_what_an_earlier_node_has_left_locked_is_let_go(
    make_queue: MakeQueue, gate: Gate
) -> None:
    queue = await make_queue(gatekeeper=gate)
    number = await queue.one(FOREVER, **NOTHING_LASTS_LONGER)
    await queue.comes_to(number, TaskState.RUNNING)
    later = Gate()
    queue = await make_queue(gatekeeper=later)
    await until(lambda: later.calls == ["unlock"], "it is let go")
    await queue.jobs.cancel(number, ME)
    await queue.over(number)
