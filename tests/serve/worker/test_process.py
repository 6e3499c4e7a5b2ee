"""One worker process, from the node's end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from treadle.errors import ModelError
from treadle.serve.worker.messages import Done, Failed, Load, LoadFailed, Run
from treadle.serve.worker.process import SLOTS, WorkerProcess

from .hosting import model
from .processes import (
    PATIENCE_SECONDS,
    EndedError,
    InFlight,
    end_of,
    is_running,
    load,
    open_descriptors,
    until,
)

Start = Callable[..., Awaitable[WorkerProcess]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts workers, and ends them all."""
    workers = []

    async def start(env: Mapping[str, str] | None = None, factory: str = "") -> WorkerProcess:
        worker = await WorkerProcess.start("w", env or {})
        workers.append(worker)
        if factory:
            await load(worker, model(factory))
        return worker

    yield start
    for worker in workers:
        worker.kill("the test is over")
    for worker in workers:
        await end_of(worker)


async def test_a_worker_loads_runs_batches_and_ends_when_asked() -> None:
    worker = await WorkerProcess.start("w", {})
    await load(worker, model())
    assert [await InFlight(worker, n).result() for n in (1.5, -3.0)] == [3.0, -6.0]
    worker.hang_up()
    assert await end_of(worker) == "worker 'w' ended with exit code 0"
    assert not is_running(worker.pid)


@pytest.mark.parametrize("how", ["asked", "killed"])
async def test_a_worker_that_ended_leaves_nothing_open(how: str) -> None:
    before = open_descriptors()
    worker = await WorkerProcess.start("w", {})
    await load(worker, model())
    assert open_descriptors() > before
    if how == "asked":
        worker.hang_up()
    else:
        worker.kill("the test is over")
    await end_of(worker)
    del worker
    await until(lambda: gc.collect() >= 0 and open_descriptors() <= before)


async def test_batches_that_are_sent_ahead_are_answered_in_order(start: Start) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    assert worker.in_flight == 0
    batches = [InFlight(worker, value) for value in (1, -1, 2, 3, 4, 5, 6, 7)]
    assert worker.in_flight == len(batches) == SLOTS
    assert await batches[3].result() == 6.0
    assert isinstance(await batches[1].answer(), Failed)
    others = [await batch.result() for n, batch in enumerate(batches) if n not in (1, 3)]
    assert others == [2.0, 4.0, 8.0, 10.0, 12.0, 14.0]
    assert worker.in_flight == 0


async def test_a_model_that_cannot_be_loaded_ends_the_worker_and_says_why(start: Start) -> None:
    worker = await start()
    answer = await worker.load(Load((model("worker_models:raises"),), nice=0))
    assert isinstance(answer, LoadFailed)
    assert "RuntimeError: no weights today" in answer.reason
    assert await end_of(worker) == "worker 'w' ended with exit code 1"


async def test_a_worker_that_dies_while_loading_answers_with_its_death(start: Start) -> None:
    worker = await start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ModelError, match="worker 'w' was killed by SIGKILL"):
            await worker.load(Load((model("worker_models:DiesWhileLoading"),), nice=0))


@pytest.mark.parametrize(
    ("what", "said"),
    [(-4, "worker 'w' was killed by SIGKILL"), (-5, "worker 'w' ended with exit code 7")],
)
async def test_a_batch_that_kills_its_worker_takes_those_behind_it_along(
    start: Start, what: int, said: str
) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    batches = [InFlight(worker, value) for value in (1, what, 3, 4)]
    _wait_for_its_end(worker)
    assert await batches[0].result() == 2.0, "an answer sent just before the end still counts"
    deaths = [await batch.death() for batch in batches[1:]]
    assert [str(death) for death in deaths] == [said] * 3
    assert [death.began for death in deaths] == [True, False, False]
    assert await end_of(worker) == said


async def test_side_by_side_what_began_earlier_is_lost_with_the_worker_too() -> None:
    worker = await WorkerProcess.start("w", {})
    await load(
        worker,
        *(model("worker_models:Misbehaves", name=name, device="cuda") for name in ("a", "b")),
    )
    hangs = InFlight(worker, -7, "a")
    await until(lambda: worker.begun)
    assert await InFlight(worker, 1, "b").result() == 2.0
    behind = InFlight(worker, 1, "a")
    worker.kill("is killed")
    assert (await hangs.death()).began
    await behind.death()
    await end_of(worker)


async def test_side_by_side_a_model_that_exits_ends_its_worker() -> None:
    worker = await WorkerProcess.start("w", {})
    await load(worker, model("worker_models:Misbehaves", device="cuda"))
    death = await InFlight(worker, -5).death()
    assert death.began
    assert str(death) == "worker 'w' ended with exit code 1"
    await end_of(worker)


def _wait_for_its_end(worker: WorkerProcess) -> None:
    """Wait without letting the event loop see anything of it."""
    with contextlib.suppress(ChildProcessError):  # already looked after by another thread
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


async def test_a_killed_worker_dies_for_the_reason_given(start: Start) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    hangs = InFlight(worker, -7)
    await until(lambda: worker.begun)
    worker.kill("was ended: a batch ran longer than 1 s")
    death = await hangs.death()
    assert str(death) == "worker 'w' was ended: a batch ran longer than 1 s"
    assert death.began


async def test_a_batch_for_a_worker_that_has_died_is_told_so(start: Start) -> None:
    worker = await start(factory="worker_models:Doubles")
    os.kill(worker.pid, signal.SIGKILL)
    await end_of(worker)
    death: EndedError | None = None

    def on_death(error: ModelError, began: bool) -> None:
        nonlocal death
        death = EndedError(error, began)

    worker.run(Run(1, 0, "m", 1, ()), lambda _: None, on_death)
    worker.flush()
    await asyncio.sleep(0)
    assert death is not None
    assert str(death) == "worker 'w' was killed by SIGKILL"
    assert not death.began


async def test_a_worker_that_does_nothing_when_it_is_asked_to_end_can_still_be_killed(
    start: Start,
) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    hangs = InFlight(worker, -7)
    worker.hang_up()
    worker.hang_up()
    worker.kill("did not end")
    assert str(await hangs.death()) == "worker 'w' did not end"


async def test_short_batches_that_are_sent_together_are_each_answered(start: Start) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    batches = [InFlight(worker, value, flush=False) for value in (1, -1, 2)]
    worker.flush()
    assert await batches[2].result() == 4.0
    assert isinstance(await batches[1].answer(), Failed)
    assert await batches[0].result() == 2.0


async def test_of_batches_that_were_sent_together_only_the_one_that_ran_is_to_blame(
    start: Start,
) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    batches = [InFlight(worker, value, flush=False) for value in (1, -4, 3)]
    worker.flush()
    with contextlib.suppress(EndedError):  # on a slow machine it was answered before
        assert isinstance(await batches[0].answer(), Done)
    deaths = [await batch.death() for batch in batches[1:]]
    assert [death.began for death in deaths] == [True, False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signals_to_all_are_for_the_node(start: Start, number: signal.Signals) -> None:
    worker = await start(factory="worker_models:Doubles")
    os.kill(worker.pid, number)
    assert await InFlight(worker, 2).result() == 4.0


async def test_what_a_model_prints_is_logged_line_by_line(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    with caplog.at_level(logging.INFO, "treadle.worker"):
        assert await InFlight(worker, -6).result() == -12.0
        worker.hang_up()
        await end_of(worker)
        await until(lambda: len(caplog.messages) == 3)
    assert caplog.messages == ["a line", "another", "no end"]
    assert {record.__dict__["worker"] for record in caplog.records} == {"w"}


async def test_a_line_without_end_does_not_fill_the_log(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await start(factory="worker_models:Misbehaves")
    with caplog.at_level(logging.INFO, "treadle.worker"):
        assert await InFlight(worker, -8).result() == -16.0
        await until(lambda: caplog.messages[-1:] == ["after"])
    assert sum(map(len, caplog.messages)) < 500_000


async def variable(start: Start, name: str, env: Mapping[str, str]) -> str:
    """A variable as a model sees it."""
    worker = await start(env)
    await load(worker, model("worker_models:Environment", parameters={"variable": name}))
    return await InFlight(worker, 0).text()


async def test_a_worker_has_the_nodes_environment_and_its_own_over_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "from the node")
    assert await variable(start, "INHERITED", {}) == "from the node"
    assert await variable(start, "INHERITED", {"INHERITED": "its own"}) == "its own"


async def test_a_worker_does_not_know_the_nodes_token(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_HTTP_TOKEN", "secret")
    assert await variable(start, "TREADLE_HTTP_TOKEN", {}) == "unset"


async def test_modules_in_the_current_folder_are_not_imported(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('a stranger')")
    monkeypatch.chdir(tmp_path)
    worker = await start(factory="worker_models:Doubles")
    assert await InFlight(worker, 2).result() == 4.0


async def test_a_worker_that_cannot_be_started_leaves_nothing_open() -> None:
    too_much = {f"V{n}": "x" * 100_000 for n in range(100)}
    before = open_descriptors()
    with pytest.raises(OSError, match="too long"):
        await WorkerProcess.start("w", too_much)
    assert open_descriptors() <= before
