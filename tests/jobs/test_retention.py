"""Jobs that were over long ago are forgotten."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from treadle.programs import table
from treadle.programs.retention import Retention, tidy
from treadle.programs.store import Store
from treadle.types import TaskState

from .conftest import MakeQueue
from .made import spec
from .queues import ME
from .supervisor.harness import DEADLINE_SECONDS


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[Store]:
    opened = Store(folder / "jobs.db")
    yield opened
    opened.close()


async def fill(store: Store, folder: Path, count: int, begin: int = 1) -> None:
    """So many jobs that are over, with folders, ended in their order."""
    jobs = await store.write(
        lambda c: table.insert(
            c, [spec(env={"A": "x" * 1000})] * count, uid=0, user="", peer_pid=None, now=1.0
        )
    )
    for job in jobs:
        job.state, job.ended_at = TaskState.FINISHED, float(job.id)
        place = folder / str(job.id) / "1"
        place.mkdir(parents=True)
        (place / "log").write_text("output")

    def save_all(connection: object) -> None:
        for job in jobs:
            table.save(connection, job, 2.0)  # type: ignore[arg-type]

    await store.write(save_all)
    assert jobs[0].id == begin


def kept_folders(folder: Path) -> list[int]:
    return sorted(int(place.name) for place in folder.iterdir() if place.name.isdigit())


async def kept_rows(store: Store) -> list[int]:
    return sorted(job.id for job in await store.read(lambda c: table.newest(c, limit=100_000)))


async def forget(store: Store, folder: Path, keep: int, needed: Sequence[int] = ()) -> int:
    retention, total = Retention(store, folder, keep, lambda: needed), 0
    while step := await retention.step():
        total += step
    return total


async def test_the_oldest_go_with_all_that_was_kept_of_them(store: Store, folder: Path) -> None:
    await fill(store, folder, 10)
    assert await forget(store, folder, keep=4) == 6
    assert await kept_rows(store) == kept_folders(folder) == [7, 8, 9, 10]
    assert await store.read(lambda c: table.history(c, 6)) == []
    assert len(await store.read(lambda c: table.history(c, 7))) == 2
    assert await forget(store, folder, keep=4) == 0


async def test_those_that_others_wait_for_stay(store: Store, folder: Path) -> None:
    await fill(store, folder, 6)
    assert await forget(store, folder, keep=0, needed=[2, 4]) == 4
    assert await kept_rows(store) == kept_folders(folder) == [2, 4]


async def test_what_is_not_over_stays(store: Store, folder: Path) -> None:
    await fill(store, folder, 3)
    await store.write(lambda c: table.insert(c, [spec()], uid=0, user="", peer_pid=None, now=1.0))
    assert await forget(store, folder, keep=0) == 3
    assert await kept_rows(store) == [4]


async def test_it_is_done_in_small_steps(store: Store, folder: Path) -> None:
    await fill(store, folder, 450)
    retention = Retention(store, folder, 0, tuple)
    assert [await retention.step() for _ in range(4)] == [200, 200, 50, 0]


async def test_a_folder_that_is_gone_already_is_no_trouble(store: Store, folder: Path) -> None:
    await fill(store, folder, 2)
    (folder / "1" / "1" / "log").unlink()
    (folder / "1" / "1").rmdir()
    (folder / "1").rmdir()
    assert await forget(store, folder, keep=0) == 2
    assert kept_folders(folder) == []


async def test_the_database_does_not_grow_for_ever(store: Store, folder: Path) -> None:
    sizes = []
    for turn in range(8):
        await fill(store, folder, 300, begin=300 * turn + 1)
        await forget(store, folder, keep=100)
        beside = sqlite3.connect(store.file)
        beside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        beside.close()
        sizes.append(store.file.stat().st_size)
    assert max(sizes[2:]) <= sizes[1] * 1.2


async def test_a_node_forgets_beside_its_work(make_queue: MakeQueue, folder: Path) -> None:
    first = await make_queue()
    for _ in range(5):
        await first.run("true")
    old = [first.seen[0].id]
    blocker = await first.one("sleep 1000", share=16)
    await first.comes_to(blocker, TaskState.RUNNING)
    late = await first.one("true", after=(*old, blocker))
    second = await make_queue(keep=2)
    kept: list[int] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        while kept != [late, blocker, 5, 4, *old]:
            kept = [job.id for job in await second.jobs.newest(limit=10)]
    assert [number for number in range(1, 6) if (folder / str(number)).exists()] == [1, 4, 5]
    await second.jobs.cancel(blocker, ME)
    assert (await second.over(late)).state is TaskState.CANCELLED


def test_of_what_is_over_output_and_end_are_kept(tmp_path: Path) -> None:
    for attempt in ("1", "2"):
        place = tmp_path / attempt
        place.mkdir()
        for name in ("log", "log.1", "ended.json", "task.json", "lock", "begun", "ended.tmp"):
            (place / name).touch()
    tidy(tmp_path)
    for attempt in ("1", "2"):
        names = {file.name for file in (tmp_path / attempt).iterdir()}
        assert names == {"log", "log.1", "ended.json"}
    tidy(tmp_path / "nowhere")
