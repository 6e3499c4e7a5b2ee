"""Jobs on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.errors import StartError, UnavailableError
from treadle.programs import table
from treadle.programs.migrations import STEPS, migrate
from treadle.programs.spec import Job, JobSpec
from treadle.programs.store import InUseError, Store
from treadle.types import TaskState

from .made import spec


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    opened = Store(file)
    yield opened
    opened.close()


async def insert(store: Store, *specs: JobSpec, uid: int = 0) -> list[Job]:
    return await store.write(
        lambda c: table.insert(c, specs or [spec()], uid=uid, user="me", peer_pid=7, now=1.0)
    )


async def find(store: Store, number: int) -> Job | None:
    return await store.read(lambda c: table.find(c, number))


async def test_a_job_is_read_as_it_was_written(store: Store) -> None:
    full = spec(
        "sh", "-c", "true", name="n", priority="critical", memory_bytes=5, gpus=2, share=0.5,
        time_limit_seconds=3.5, retries=2, after=(), env={"A": "é\n"}, cwd="/tmp", umask=0o77,
    )  # fmt: skip
    (job,) = await insert(store, full)
    assert await find(store, job.id) == job
    job.state, job.reason, job.attempt, job.failures = TaskState.FAILED, "why", 3, 2
    job.devices, job.started_at, job.ended_at = ("GPU-1", "GPU-2"), 2.0, 3.0
    job.exit_code, job.signal, job.cancelled, job.held = 4, 9, True, True
    await store.write(lambda c: table.save(c, job, 3.0))
    assert await find(store, job.id) == job
    assert await find(store, job.id + 1) is None


async def test_numbers_go_up_and_are_never_used_again(store: Store) -> None:
    first = await insert(store, spec(), spec())
    await store.write(lambda c: table.delete(c, [job.id for job in first]))
    (later,) = await insert(store)
    assert [job.id for job in first] == [1, 2]
    assert later.id == 3


async def test_works_run_in_the_order_in_which_they_were_given(store: Store) -> None:
    done: list[int] = []

    def note(_: sqlite3.Connection, number: int) -> None:
        done.append(number)

    await asyncio.gather(
        *(store.write(lambda c, n=number: note(c, n)) for number in range(3000))  # type: ignore[misc]
    )
    assert done == [*range(3000)]


async def test_what_waits_together_is_committed_together(store: Store) -> None:
    gate = threading.Event()
    commits: list[str] = []
    blocked = store.write(lambda c: gate.wait())
    tracing = store.write(lambda c: c.set_trace_callback(commits.append))
    writing = [insert(store) for _ in range(50)]
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in writing]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(blocked, tracing, *tasks)
    await store.write(lambda c: c.set_trace_callback(None))
    assert commits.count("COMMIT") <= 2


async def test_a_work_that_fails_is_undone_alone(store: Store) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        table.insert(connection, [spec("bad")], uid=0, user="", peer_pid=None, now=1.0)
        raise ValueError("no")

    gate = threading.Event()
    blocked = store.write(lambda c: gate.wait())
    before, failing, after = insert(store), store.write(fail), insert(store)
    tasks: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(before),
        failing,
        asyncio.ensure_future(after),
    ]
    await asyncio.sleep(0)
    gate.set()
    await blocked
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [list, ValueError, list]
    jobs = await store.read(table.unfinished)
    assert [job.spec.command for job in jobs] == [("true",), ("true",)]


async def test_a_full_disk_is_said_and_nothing_of_the_transaction_stays(store: Store) -> None:
    await store.write(lambda c: c.execute("PRAGMA max_page_count = 12").fetchone())
    large = spec(env={"A": "x" * 200_000})
    with pytest.raises(UnavailableError, match=r"cannot be written: .*full"):
        await insert(store, large)
    assert await store.read(table.unfinished) == []
    await store.write(lambda c: c.execute("PRAGMA max_page_count = 100000").fetchone())
    (job,) = await insert(store, large)
    assert await find(store, job.id) == job


async def test_what_a_caller_no_longer_waits_for_is_written_nevertheless(store: Store) -> None:
    gate = threading.Event()
    blocked = store.write(lambda c: gate.wait())
    task = asyncio.ensure_future(insert(store))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gate.set()
    await blocked
    await store.write(lambda c: None)
    assert len(await store.read(table.unfinished)) == 1


async def test_reading_does_not_wait_for_the_writer(store: Store) -> None:
    await insert(store)
    gate, entered = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        table.insert(connection, [spec()], uid=0, user="", peer_pid=None, now=1.0)
        entered.set()
        gate.wait()

    blocked = store.write(hold)
    await asyncio.to_thread(entered.wait)
    assert len(await store.read(table.unfinished)) == 1
    gate.set()
    await blocked
    assert len(await store.read(table.unfinished)) == 2


async def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(UnavailableError, match="readonly"):
        await store.read(lambda c: c.execute("DELETE FROM job"))


async def test_the_newest_come_first_by_state_user_and_number(store: Store) -> None:
    jobs = await insert(store, *[spec()] * 5)
    (other,) = await insert(store, spec(), uid=5)
    jobs[1].state = TaskState.FINISHED
    await store.write(lambda c: table.save(c, jobs[1], 2.0))

    async def numbers(**wanted: object) -> list[int]:
        found = await store.read(lambda c: table.newest(c, limit=3, **wanted))  # type: ignore[arg-type]
        return [job.id for job in found]

    assert await numbers() == [6, 5, 4]
    assert await numbers(before=4) == [3, 2, 1]
    assert await numbers(uid=5) == [other.id]
    assert await numbers(states=["finished"]) == [2]
    assert await numbers(states=["finished", "queued"], before=3) == [2, 1]


async def test_the_history_has_each_change_once(store: Store) -> None:
    (job,) = await insert(store)
    for at, state, reason in (
        (2.0, TaskState.QUEUED, ""),
        (3.0, TaskState.RUNNING, ""),
        (4.0, TaskState.RUNNING, ""),
        (5.0, TaskState.FAILED, "exit code 1"),
    ):
        job.state, job.reason = state, reason
        await store.write(lambda c, now=at: table.save(c, job, now))  # type: ignore[misc]
    assert await store.read(lambda c: table.history(c, job.id)) == [
        (1.0, "queued", ""),
        (3.0, "running", ""),
        (5.0, "failed", "exit code 1"),
    ]


async def test_the_oldest_that_are_over_come_first_without_those_to_keep(store: Store) -> None:
    jobs = await insert(store, *[spec()] * 5)
    for job, ended_at in zip(jobs, (50.0, 40.0, 30.0, None, 10.0), strict=True):
        if ended_at is not None:
            job.state, job.ended_at = TaskState.FINISHED, ended_at
            await store.write(lambda c, one=job: table.save(c, one))  # type: ignore[misc]
    assert await store.read(lambda c: table.oldest_over(c, 0, 10)) == [5, 3, 2, 1]
    assert await store.read(lambda c: table.oldest_over(c, 2, 10)) == [5, 3]
    assert await store.read(lambda c: table.oldest_over(c, 2, 1)) == [5]
    assert await store.read(lambda c: table.oldest_over(c, 9, 1)) == []


async def test_what_was_written_is_there_when_it_is_opened_again(file: Path) -> None:
    first = Store(file)
    (job,) = await insert(first)
    first.close()
    second = Store(file)
    assert await second.read(table.unfinished) == [job]
    second.close()


async def test_what_was_acknowledged_survives_a_kill(file: Path, tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from treadle.programs import table\n"
        "from treadle.programs.spec import JobSpec\n"
        "from treadle.programs.store import Store\n"
        "async def main():\n"
        "    store = Store(Path(sys.argv[1]))\n"
        "    await store.write(lambda c: table.insert(\n"
        "        c, [JobSpec(command=('a',))], uid=0, user='', peer_pid=None, now=1.0))\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, str(file)])
    assert ended.returncode == -signal.SIGKILL
    store = Store(file)  # and the lock fell with the process
    assert len(await store.read(table.unfinished)) == 1
    store.close()


def test_nobody_else_can_read_it(file: Path) -> None:
    Store(file).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_second_one_is_told_who_has_it(file: Path, store: Store) -> None:
    with pytest.raises(InUseError, match=rf"another node \(pid {os.getpid()}\) runs the jobs of"):
        Store(file)


def test_once_it_is_closed_another_may_open_it(file: Path) -> None:
    Store(file).close()
    Store(file).close()


async def test_a_closed_one_refuses(file: Path) -> None:
    store = Store(file)
    store.close()
    with pytest.raises(UnavailableError, match="ending"):
        await store.write(lambda c: None)
    with pytest.raises(UnavailableError, match="cannot be read"):
        await store.read(table.unfinished)


def test_what_is_no_database_is_said(file: Path) -> None:
    file.write_text("something else, and long enough to be looked at" * 50)
    with pytest.raises(StartError, match=r"jobs\.db cannot be used: .*not a database"):
        Store(file)
    file.unlink()
    Store(file).close()  # the lock was let go


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="No such file"):
        Store(tmp_path / "nowhere" / "jobs.db")


async def test_jobs_of_an_array_have_one_environment_until_the_last_is_forgotten(
    store: Store,
) -> None:
    one = spec(env={"A": "1"})
    jobs = await insert(store, *(replace(one, array_index=index) for index in range(3)))
    other, none = await insert(store, spec(env={"A": "1"}), spec())
    found = await store.read(table.unfinished)
    assert [job.spec for job in found] == [job.spec for job in (*jobs, other, none)]
    assert found[0].spec.env is found[2].spec.env

    def kept(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        return connection.execute("SELECT id, content FROM environment").fetchall()

    assert await store.read(kept) == [(1, b'{"A":"1"}'), (2, b'{"A":"1"}')]
    await store.write(lambda c: table.delete(c, [1, 2, other.id, none.id, 99]))
    assert await store.read(kept) == [(1, b'{"A":"1"}')]
    assert await find(store, 3) == jobs[2]
    await store.write(lambda c: table.delete(c, [3]))
    assert await store.read(kept) == []


# The layout.


def layout(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


@pytest.mark.parametrize("version", range(len(STEPS)))
def test_an_earlier_layout_is_brought_up_to_date_with_what_it_holds(
    file: Path, version: int
) -> None:
    fresh, old = (
        sqlite3.connect(":memory:", isolation_level=None),
        sqlite3.connect(file, isolation_level=None),
    )
    migrate(fresh)
    migrate(old, STEPS[:version])
    if version:
        old.execute(
            "INSERT INTO job (name, priority, spec, state, uid, user, submitted_at, ended_at)"
            " VALUES ('n', 'normal', ?, 'queued', 0, 'me', 1.0, 2.0)",
            (b'{"command":["true"],"env":{"A":"1"}}',),
        )
    migrate(old)
    migrate(old)
    assert layout(old) == layout(fresh)
    assert old.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    if version:
        job = table.find(old, 1)
        assert job is not None
        # The second step takes the end from those that are not over.
        assert (job.spec.command, job.ended_at) == (("true",), None if version < 2 else 2.0)
        assert job.spec.env == {"A": "1"}
        (later,) = table.insert(old, [job.spec], uid=0, user="me", peer_pid=None, now=3.0)
        assert [one.spec for one in table.unfinished(old)] == [job.spec, later.spec]
        table.delete(old, [1, 2])
        assert old.execute("SELECT * FROM environment").fetchall() == []
    old.close()
    fresh.close()


def test_a_newer_layout_is_refused(file: Path) -> None:
    Store(file).close()
    newer = sqlite3.connect(file)
    newer.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    newer.close()
    with pytest.raises(StartError, match=f"layout {len(STEPS) + 1}, this treadle knows"):
        Store(file)


def test_a_step_that_fails_leaves_the_layout_before_it(file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    migrate(connection)
    before = layout(connection)
    broken = (*STEPS, ("CREATE TABLE more (x INTEGER)", "nonsense"))
    with pytest.raises(sqlite3.Error):
        migrate(connection, broken)
    assert layout(connection) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    connection.close()
