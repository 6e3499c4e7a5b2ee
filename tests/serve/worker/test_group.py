"""The workers of one name: started, restarted, let go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle.serve.worker.group import WorkerGroup
from treadle.serve.worker.messages import Loaded, LoadFailed, ModelSetup
from treadle.serve.worker.process import WorkerProcess

from .hosting import FLOATS, RESULT, model
from .processes import PATIENCE_SECONDS, InFlight, is_running, until


class Watched:
    """A group, and what it reported."""

    def __init__(self, *setups: ModelSetup, replicas: int = 1, env: Mapping[str, str]) -> None:
        self.changed = asyncio.Event()
        self.lost: list[str] = []
        self.group = WorkerGroup(
            "w",
            setups,
            replicas=replicas,
            env=env,
            nice=0,
            on_idle=self.changed.set,
            on_lost=self._on_lost,
        )

    def _on_lost(self, group: WorkerGroup, reason: str) -> None:
        assert group is self.group
        self.lost.append(reason)
        self.changed.set()

    @property
    def worker(self) -> WorkerProcess:
        (worker,) = self.group.workers
        return worker

    async def started(self) -> Loaded | LoadFailed:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.group.started()

    async def failed(self) -> str:
        answer = await self.started()
        assert isinstance(answer, LoadFailed), answer
        return answer.reason

    async def changes(self) -> None:
        """Wait until a worker is ready for batches, or the group is lost."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.changed.wait()
        self.changed.clear()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.group.ended()


Start = Callable[..., Watched]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts groups, and ends them all."""
    groups = []

    def start(*setups: ModelSetup, env: Mapping[str, str] | None = None, **more: Any) -> Watched:
        groups.append(Watched(*(setups or (model(),)), env=env or {}, **more))
        return groups[-1]

    yield start
    for watched in groups:
        watched.group.kill("the test is over")
        await watched.ended()


async def test_a_group_loads_and_serves_until_it_is_retired(start: Start) -> None:
    watched = start(model(name="a"), model(name="b"))
    assert not watched.group.alive
    answer = await watched.started()
    assert answer == Loaded({"a": (FLOATS, RESULT), "b": (FLOATS, RESULT)})
    assert (watched.group.name, watched.group.models) == ("w", ("a", "b"))
    assert watched.group.alive
    assert [await InFlight(watched.worker, 2, name).result() for name in "ab"] == [4.0, 4.0]
    pid = watched.worker.pid
    watched.group.retire()
    await watched.ended()
    assert not watched.group.alive
    assert not is_running(pid)
    assert (watched.group.restarts, watched.lost) == (0, [])


async def test_replicas_are_processes_of_their_own(start: Start) -> None:
    watched = start(replicas=3)
    assert isinstance(await watched.started(), Loaded)
    pids = {worker.pid for worker in watched.group.workers}
    assert len(pids) == 3
    results = [InFlight(worker, n) for n, worker in enumerate(watched.group.workers)]
    assert [await result.result() for result in results] == [0.0, 2.0, 4.0]


async def test_a_worker_that_died_is_replaced_and_its_replacement_too(start: Start) -> None:
    watched = start()
    await watched.started()
    pids = [watched.worker.pid]
    for restarts in (1, 2):
        os.kill(pids[-1], signal.SIGKILL)
        await watched.changes()
        pids.append(watched.worker.pid)
        assert watched.group.restarts == restarts
        assert await InFlight(watched.worker, 2).result() == 4.0
    assert len(set(pids)) == 3
    assert watched.lost == []


async def test_one_of_several_replicas_may_die_while_the_others_serve(start: Start) -> None:
    watched = start(replicas=2)
    await watched.started()
    dying, other = watched.group.workers
    os.kill(dying.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await dying.exited
    assert watched.group.alive
    assert await InFlight(other, 2).result() == 4.0
    await watched.changes()
    assert len(watched.group.workers) == 2


async def test_a_retired_group_finishes_its_batch_first(start: Start) -> None:
    watched = start()
    await watched.started()
    worker = watched.worker
    batch = InFlight(worker, 2)
    watched.group.retire()
    assert await batch.result() == 4.0
    watched.group.batch_ended(worker)
    await watched.ended()


async def test_the_end_of_a_batch_is_passed_on(start: Start) -> None:
    watched = start()
    await watched.started()
    watched.changed.clear()
    await InFlight(watched.worker, 2).result()
    watched.group.batch_ended(watched.worker)
    assert watched.changed.is_set()


async def test_a_worker_of_a_retired_group_that_dies_is_not_replaced(start: Start) -> None:
    watched = start(model("worker_models:Misbehaves"))
    await watched.started()
    batch = InFlight(watched.worker, -4)
    watched.group.retire()
    assert "SIGKILL" in str(await batch.death())
    await watched.ended()
    assert watched.group.restarts == 0


async def test_killing_ends_batches_for_the_reason_given(start: Start) -> None:
    watched = start(model("worker_models:Misbehaves"))
    await watched.started()
    batch = InFlight(watched.worker, -7)
    watched.group.kill("was ended: the node shuts down at once")
    assert str(await batch.death()) == "worker 'w' was ended: the node shuts down at once"
    await watched.ended()


async def test_a_model_that_cannot_be_loaded_is_tried_once_and_says_why(start: Start) -> None:
    watched = start(model(name="good"), model("worker_models:raises", name="bad"))
    answer = await watched.started()
    assert isinstance(answer, LoadFailed)
    assert answer.model == "bad"
    assert "RuntimeError: no weights today" in answer.reason
    await watched.ended()
    assert (watched.group.restarts, watched.lost) == (0, [])


async def test_all_replicas_must_load(start: Start, tmp_path: Path) -> None:
    parameters = {"folder": str(tmp_path)}
    watched = start(model("worker_models:FailsForTheLast", parameters=parameters), replicas=3)
    assert "RuntimeError: one too many" in await watched.failed()


async def test_a_worker_that_always_dies_while_loading_is_given_up(start: Start) -> None:
    watched = start(model("worker_models:DiesWhileLoading"))
    assert await watched.failed() == "worker 'w' was killed by SIGKILL while loading"
    await watched.ended()
    assert watched.group.restarts > 0


async def test_a_group_that_served_and_cannot_load_again_is_lost(
    start: Start, tmp_path: Path
) -> None:
    fuse = tmp_path / "fuse"
    watched = start(model("worker_models:LoadsOnce", parameters={"fuse": str(fuse)}))
    await watched.started()
    fuse.touch()
    os.kill(watched.worker.pid, signal.SIGKILL)
    await watched.changes()
    (reason,) = watched.lost
    assert "the fuse has blown" in reason
    assert not watched.group.alive
    await watched.ended()


@pytest.mark.parametrize("how", ["retire", "kill"])
async def test_a_group_may_be_let_go_while_it_loads(start: Start, tmp_path: Path, how: str) -> None:
    started = tmp_path / "started"
    parameters = {"started": str(started)}
    watched = start(model("worker_models:HangsWhileLoading", parameters=parameters))
    await until(lambda: started.exists() and started.read_text())
    if how == "kill":
        watched.group.kill("not needed")
    else:
        watched.group.retire()
    assert await watched.failed() == "unloaded while loading"
    await watched.ended()
    assert not is_running(int(started.read_text()))


async def test_a_group_may_be_let_go_before_it_has_started(start: Start) -> None:
    watched = start()
    watched.group.retire()
    assert await watched.failed() == "unloaded while loading"


# A setup that no worker can be given: it is refused, not waited for.
IMPOSSIBLE: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("a number beyond 64 bits", {"parameters": {"n": 10**30}}, {}),
    ("too much for one message", {"parameters": {"labels": ["x" * 100] * 2000}}, {}),
    ("too much for the socket", {"parameters": {"labels": ["x" * 100] * 50_000}}, {}),
    ("too much environment", {}, {f"V{n}": "x" * 100_000 for n in range(100)}),
    ("a variable whose name has a sign", {}, {"A=B": "1"}),
    ("a variable with a zero byte", {}, {"A": "1\0"}),
]


@pytest.mark.parametrize(
    ("changes", "env"), [case[1:] for case in IMPOSSIBLE], ids=[case[0] for case in IMPOSSIBLE]
)
async def test_what_no_worker_can_be_given_is_a_load_that_failed(
    changes: dict[str, Any], env: dict[str, str]
) -> None:
    watched = Watched(model(**changes), env=env)
    started = asyncio.create_task(watched.group.started())
    try:
        # Loading goes on for ever, or its keeper has died of an error that nobody sees.
        done, _ = await asyncio.wait([started], timeout=PATIENCE_SECONDS / 5)
        assert done, "neither loaded nor refused"
        assert isinstance(started.result(), LoadFailed)
    finally:
        started.cancel()
        watched.group.kill("the test is over")
        await asyncio.wait([asyncio.create_task(_ended(watched.group))], timeout=PATIENCE_SECONDS)


async def _ended(group: WorkerGroup) -> BaseException | None:
    try:
        await group.ended()
    except Exception as error:
        return error
    return None
