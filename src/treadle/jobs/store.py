"""Jobs on disk: SQLite with a write-ahead log. A change that was acknowledged is on the disk.

One thread writes. What waits for it meanwhile goes into one transaction, so a thousand jobs that
are submitted at once cost a few commits, not a thousand.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from treadle.errors import StartError, UnavailableError
from treadle.jobs.migrations import migrate
from treadle.jobs.spec import Job, JobSpec
from treadle.types import TaskState

_T = TypeVar("_T")
Work = Callable[[sqlite3.Connection], Any]
_MOST_AT_ONCE = 1000
_BUSY_SECONDS = 10.0
_COLUMNS = (
    "id, spec, state, reason, uid, user, peer_pid, attempt, failures, devices, submitted_at, "
    "started_at, ended_at, exit_code, signal, cancelled, held"
)
_SAVE = (
    "UPDATE job SET state = ?, reason = ?, attempt = ?, failures = ?, devices = ?, started_at = ?, "
    "ended_at = ?, exit_code = ?, signal = ?, cancelled = ?, held = ? WHERE id = ?"
)
_encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(JobSpec).decode
_decode_devices = msgspec.json.Decoder(tuple[str, ...]).decode


class Store:
    """The queue on disk, for one node."""

    def __init__(self, file: Path) -> None:
        """Open the database, make it or bring it up to date.

        Raises:
            StartError: If it cannot be used; says why.
        """
        try:
            self._connection = sqlite3.connect(
                file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            migrate(self._connection)
            self._reading = sqlite3.connect(
                file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._reading.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise StartError(f"the job database {file} cannot be used: {error}") from error
        file.chmod(0o600)
        self.file = file
        self._read_lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._thread.start()

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> asyncio.Future[_T]:
        """Run ``work`` in a transaction, in the order of calls.

        What it changed is on the disk once the future is done. Who goes away does not take it back.

        Raises:
            UnavailableError: If the disk is full or fails.
        """
        future: Future[_T] = Future()
        self._waiting.put((work, future))
        return asyncio.shield(asyncio.wrap_future(future))

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work``, which changes nothing, beside the writer."""

        def locked() -> _T:
            with self._read_lock:
                return work(self._reading)

        return await asyncio.to_thread(locked)

    def close(self) -> None:
        """Finish what waits, and close."""
        self._waiting.put(None)
        self._thread.join()
        with self._read_lock:
            self._reading.close()
        self._connection.close()

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = []
            entry = self._waiting.get()
            while entry is not None:
                batch.append(entry)
                if len(batch) == _MOST_AT_ONCE:
                    break
                try:
                    entry = self._waiting.get_nowait()
                except queue.Empty:
                    break
            else:
                ended = True
            if batch:
                self._commit(batch)

    def _commit(self, batch: Sequence[tuple[Work, Future[Any]]]) -> None:
        """Run works in one transaction; one that fails is undone alone."""
        connection = self._connection
        results: list[tuple[Future[Any], Any, Exception | None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for work, future in batch:
                connection.execute("SAVEPOINT one")
                try:
                    results.append((future, work(connection), None))
                except sqlite3.OperationalError:
                    raise  # the disk, not the work
                except Exception as error:
                    connection.execute("ROLLBACK TO one")
                    results.append((future, None, error))
                connection.execute("RELEASE one")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            failure = UnavailableError(f"the job database {self.file} cannot be written: {error}")
            results = [(future, None, failure) for _, future in batch]
        for future, result, problem in results:
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)


def insert(
    connection: sqlite3.Connection,
    specs: Iterable[JobSpec],
    *,
    uid: int,
    user: str,
    peer_pid: int | None,
    now: float,
) -> list[Job]:
    """Queue jobs; they get the next numbers, one after another."""
    jobs = []
    for spec in specs:
        cursor = connection.execute(
            "INSERT INTO job (name, priority, spec, state, uid, user, peer_pid, submitted_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                spec.name,
                spec.priority,
                _encode(spec),
                TaskState.QUEUED,
                uid,
                user,
                peer_pid,
                now,
            ),
        )
        number = cursor.lastrowid
        assert number is not None
        job = Job(
            id=number,
            spec=spec,
            state=TaskState.QUEUED,
            uid=uid,
            user=user,
            peer_pid=peer_pid,
            submitted_at=now,
        )
        _note(connection, job, now)
        jobs.append(job)
    return jobs


def save(connection: sqlite3.Connection, job: Job, now: float | None = None) -> None:
    """Write how far a job has come, and note it in its history."""
    connection.execute(
        _SAVE,
        (
            job.state,
            job.reason,
            job.attempt,
            job.failures,
            _encode(job.devices),
            job.started_at,
            job.ended_at,
            job.exit_code,
            job.signal,
            job.cancelled,
            job.held,
            job.id,
        ),
    )
    _note(connection, job, time.time() if now is None else now)


def find(connection: sqlite3.Connection, number: int) -> Job | None:
    """The job of that number."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM job WHERE id = ?", (number,)).fetchone()
    return None if row is None else _job(row)


def unfinished(connection: sqlite3.Connection) -> list[Job]:
    """All jobs that are not over, the oldest first."""
    over = [state for state in TaskState if state.over]
    marks = ", ".join("?" * len(over))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM job WHERE state NOT IN ({marks}) ORDER BY id", over
    )
    return [_job(row) for row in rows]


def newest(
    connection: sqlite3.Connection,
    *,
    states: Sequence[str] = (),
    before: int | None = None,
    uid: int | None = None,
    limit: int,
) -> list[Job]:
    """The newest jobs, the newest first."""
    wanted, values = ["1"], []
    if states:
        wanted.append(f"state IN ({', '.join('?' * len(states))})")
        values += [*states]
    if before is not None:
        wanted.append("id < ?")
        values.append(str(before))
    if uid is not None:
        wanted.append("uid = ?")
        values.append(str(uid))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM job WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",
        [*values, limit],
    )
    return [_job(row) for row in rows]


def states_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, TaskState]:
    """The states of those of these jobs that there are."""
    found = {}
    for number in numbers:
        row = connection.execute("SELECT state FROM job WHERE id = ?", (number,)).fetchone()
        if row is not None:
            found[number] = TaskState(row[0])
    return found


def history(connection: sqlite3.Connection, number: int) -> list[tuple[float, str, str]]:
    """When a job came into each state, and why."""
    rows = connection.execute(
        "SELECT at, state, reason FROM history WHERE job = ? ORDER BY rowid", (number,)
    )
    return [(float(at), str(state), str(reason)) for at, state, reason in rows]


def _note(connection: sqlite3.Connection, job: Job, now: float) -> None:
    """Add to a job's history, unless it says that already."""
    last = connection.execute(
        "SELECT state, reason FROM history WHERE job = ? ORDER BY rowid DESC LIMIT 1", (job.id,)
    ).fetchone()
    if last != (job.state, job.reason):
        connection.execute(
            "INSERT INTO history (job, at, state, reason) VALUES (?, ?, ?, ?)",
            (job.id, now, job.state, job.reason),
        )


def _job(row: Sequence[Any]) -> Job:
    number, spec, state, reason, uid, user, peer_pid, attempt, failures, devices, *rest = row
    submitted_at, started_at, ended_at, exit_code, signal, cancelled, held = rest
    return Job(
        id=number,
        spec=_decode_spec(spec),
        state=TaskState(state),
        reason=reason,
        uid=uid,
        user=user,
        peer_pid=peer_pid,
        attempt=attempt,
        failures=failures,
        devices=_decode_devices(devices),
        submitted_at=submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        exit_code=exit_code,
        signal=signal,
        cancelled=bool(cancelled),
        held=bool(held),
    )
