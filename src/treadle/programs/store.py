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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, TypeVar

from treadle.errors import StartError, UnavailableError
from treadle.lockfile import HeldError, hold
from treadle.programs.migrations import migrate

_T = TypeVar("_T")
Work = Callable[[sqlite3.Connection], Any]
_MOST_AT_ONCE = 1000
_BUSY_SECONDS = 10.0
_LOG_BYTES = 16 << 20
"""The write-ahead log may be longer for a while, but not for ever."""


class InUseError(StartError):
    """Another node has the database."""


class Store:
    """The queue on disk, for one node."""

    def __init__(self, file: Path) -> None:
        """Open the database, make it or bring it up to date.

        Raises:
            InUseError: If another node has it; says which.
            StartError: If it cannot be used; says why.
        """
        self._lock = _hold(file)
        try:
            self._open(file)
        except BaseException:
            self._lock.close()
            raise
        self.file = file
        self._read_lock = threading.Lock()
        self._closed = False
        self._waiting: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        self._thread.start()

    def _open(self, file: Path) -> None:
        try:
            self._connection = sqlite3.connect(
                file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            migrate(self._connection)
            self._reading = sqlite3.connect(
                file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._reading.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise StartError(f"the job database {file} cannot be used: {error}") from error
        file.chmod(0o600)

    def write(self, work: Callable[[sqlite3.Connection], _T]) -> asyncio.Future[_T]:
        """Run ``work`` in a transaction, in the order of calls.

        What it changed is on the disk once the future is done. Who goes away does not take it back.

        Raises:
            UnavailableError: If the disk is full or fails, or the node ends.
        """
        if self._closed:
            raise UnavailableError("the node is ending")
        future: Future[_T] = Future()
        self._waiting.put((work, future))
        return asyncio.shield(asyncio.wrap_future(future))

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``work``, which changes nothing, beside the writer.

        Raises:
            UnavailableError: If the disk fails, or the node ends.
        """

        def locked() -> _T:
            with self._read_lock:
                try:
                    return work(self._reading)
                except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
                    raise UnavailableError(
                        f"the job database {self.file} cannot be read: {error}"
                    ) from error

        return await asyncio.to_thread(locked)

    def close(self) -> None:
        """Finish what waits, and close."""
        self._closed = True
        self._waiting.put(None)
        self._thread.join()
        with self._read_lock:
            self._reading.close()
        self._connection.close()
        self._lock.close()

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
                    results.append((future, None, self._unavailable(error)))
                connection.execute("RELEASE one")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            results = [(future, None, self._unavailable(error)) for _, future in batch]
        for future, result, problem in results:
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)

    def _unavailable(self, error: Exception) -> Exception:
        """What callers are told of an error of the database."""
        if not isinstance(error, sqlite3.Error):
            return error
        return UnavailableError(f"the job database {self.file} cannot be written: {error}")


def _hold(file: Path) -> IO[str]:
    """One node a database."""
    path = file.with_name(file.name + ".lock")
    try:
        return hold(path)
    except OSError as error:
        raise StartError(f"cannot open {path}: {error.strerror}") from error
    except HeldError as error:
        raise InUseError(
            f"another node (pid {error.holder}) runs the jobs of {file.parent}; stop it, or set "
            "TREADLE_STATE_DIR for a second one"
        ) from None
