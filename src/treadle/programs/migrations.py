"""The database's layout, as the steps that lead to it."""

from __future__ import annotations

import sqlite3

from treadle.errors import StartError

STEPS = (
    (
        """CREATE TABLE job (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL,
            priority TEXT NOT NULL,
            spec BLOB NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL DEFAULT '',
            uid INTEGER NOT NULL,
            user TEXT NOT NULL,
            peer_pid INTEGER,
            attempt INTEGER NOT NULL DEFAULT 0,
            failures INTEGER NOT NULL DEFAULT 0,
            devices BLOB NOT NULL DEFAULT x'5b5d',
            submitted_at REAL NOT NULL,
            started_at REAL,
            ended_at REAL,
            exit_code INTEGER,
            signal INTEGER,
            cancelled INTEGER NOT NULL DEFAULT 0,
            held INTEGER NOT NULL DEFAULT 0
        ) STRICT""",
        "CREATE INDEX job_state ON job (state)",
        """CREATE TABLE history (
            job INTEGER NOT NULL REFERENCES job (id),
            at REAL NOT NULL,
            state TEXT NOT NULL,
            reason TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX history_job ON history (job)",
    ),
    (
        # Only of a job that is over: the oldest of those are forgotten.
        "UPDATE job SET ended_at = NULL WHERE state NOT IN "
        "('finished', 'failed', 'cancelled', 'lost')",
        "CREATE INDEX job_ended ON job (ended_at, id) WHERE ended_at IS NOT NULL",
    ),
    ("ALTER TABLE job ADD COLUMN bounds TEXT NOT NULL DEFAULT ''",),
    (
        # Jobs of one array share it. Those that were queued before have theirs in their spec.
        "CREATE TABLE environment (id INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT",
        "ALTER TABLE job ADD COLUMN environment INTEGER REFERENCES environment (id)",
        "CREATE INDEX job_environment ON job (environment) WHERE environment IS NOT NULL",
    ),
)
"""Never changed, only added to: a database of any earlier version takes the steps that it lacks."""


def migrate(connection: sqlite3.Connection, steps: tuple[tuple[str, ...], ...] = STEPS) -> None:
    """Take the steps that the database lacks, each in a transaction.

    Raises:
        StartError: If it was made by a newer version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise StartError(
            f"the job database is of layout {version}, this treadle knows {len(steps)}: it was "
            "used by a newer version"
        )
    for number, step in enumerate(steps[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in step:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
