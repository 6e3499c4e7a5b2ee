"""What is read from and written to the tables of jobs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.programs.spec import Job, JobSpec
from treadle.types import TaskState

_COLUMNS = (
    "id, spec, state, reason, uid, user, peer_pid, attempt, failures, devices, submitted_at, "
    "started_at, ended_at, exit_code, signal, cancelled, held, bounds, environment"
)
_SAVE = (
    "UPDATE job SET state = ?, reason = ?, attempt = ?, failures = ?, devices = ?, started_at = ?, "
    "ended_at = ?, exit_code = ?, signal = ?, cancelled = ?, held = ?, bounds = ? WHERE id = ?"
)
_encode = msgspec.json.Encoder().encode
_decode_spec = msgspec.json.Decoder(JobSpec).decode
_decode_environment = msgspec.json.Decoder(dict[str, str]).decode
_decode_devices = msgspec.json.Decoder(tuple[str, ...]).decode


def insert(
    connection: sqlite3.Connection,
    specs: Iterable[JobSpec],
    *,
    uid: int,
    user: str,
    peer_pid: int | None,
    now: float,
) -> list[Job]:
    """Queue jobs; they get the next numbers, one after another. One environment is kept once."""
    jobs = []
    kept: dict[str, str] = {}
    environment = None
    for spec in specs:
        if spec.env is not kept:
            kept = spec.env
            environment = _keep_environment(connection, kept) if kept else None
        cursor = connection.execute(
            "INSERT INTO job (name, priority, spec, environment, state, uid, user, peer_pid, "
            "submitted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                spec.name,
                spec.priority,
                _encode(replace(spec, env={})),
                environment,
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
        jobs.append(job)
    connection.executemany(
        "INSERT INTO history (job, at, state, reason) VALUES (?, ?, ?, '')",
        [(job.id, now, job.state) for job in jobs],
    )
    return jobs


def _keep_environment(connection: sqlite3.Connection, content: Mapping[str, str]) -> int | None:
    return connection.execute(
        "INSERT INTO environment (content) VALUES (?)", (_encode(content),)
    ).lastrowid


def delete(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Forget jobs, with their history, and environments that no other job has."""
    rows = [(number,) for number in numbers]
    environments = {
        connection.execute("SELECT environment FROM job WHERE id = ?", row).fetchone()
        for row in rows
    }
    connection.executemany("DELETE FROM history WHERE job = ?", rows)
    connection.executemany("DELETE FROM job WHERE id = ?", rows)
    connection.executemany(
        "DELETE FROM environment WHERE id = ?1 "
        "AND NOT EXISTS (SELECT 1 FROM job WHERE environment = ?1)",
        environments - {None},
    )


def oldest_over(connection: sqlite3.Connection, keep: int, most: int) -> list[int]:
    """Jobs that are over, those first that ended first, without the ``keep`` newest."""
    (count,) = connection.execute("SELECT COUNT(*) FROM job WHERE ended_at IS NOT NULL").fetchone()
    rows = connection.execute(
        "SELECT id FROM job WHERE ended_at IS NOT NULL ORDER BY ended_at, id LIMIT ?",
        (max(0, min(count - keep, most)),),
    )
    return [number for (number,) in rows]


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
            job.bounds,
            job.id,
        ),
    )
    _note(connection, job, time.time() if now is None else now)


def find(connection: sqlite3.Connection, number: int) -> Job | None:
    """The job of that number."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM job WHERE id = ?", (number,)).fetchone()
    return None if row is None else _jobs(connection, [row])[0]


def unfinished(connection: sqlite3.Connection) -> list[Job]:
    """All jobs that are not over, the oldest first."""
    over = [state for state in TaskState if state.over]
    marks = ", ".join("?" * len(over))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM job WHERE state NOT IN ({marks}) ORDER BY id", over
    )
    return _jobs(connection, rows)


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
    return _jobs(connection, rows)


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


def _jobs(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> list[Job]:
    """Jobs from their rows. Those of one array share their environment in memory, too."""
    jobs = []
    environments: dict[int, dict[str, str]] = {}
    for *row, environment in rows:
        job = _job(row)
        if environment is not None:
            if environment not in environments:
                (content,) = connection.execute(
                    "SELECT content FROM environment WHERE id = ?", (environment,)
                ).fetchone()
                environments[environment] = _decode_environment(content)
            job.spec = replace(job.spec, env=environments[environment])
        jobs.append(job)
    return jobs


def _job(row: Sequence[Any]) -> Job:
    number, spec, state, reason, uid, user, peer_pid, attempt, failures, devices, *rest = row
    submitted_at, started_at, ended_at, exit_code, signal, cancelled, held, bounds = rest
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
        bounds=bounds,
    )
