"""Forgets jobs that were over long ago: the database and the folders stay bounded."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from treadle.errors import UnavailableError
from treadle.programs import table
from treadle.programs.store import Store
from treadle.programs.supervisor.ending import ENDED

_log = logging.getLogger("treadle.jobs")
KEPT_FILES = frozenset(("log", "log.1", ENDED))
"""What stays of an attempt that is over."""
KEPT_ATTEMPTS = 5
"""Of one job: it may be tried again and again, and each has a log."""
_STEP = 200
_STEP_SECONDS = 0.1
"""Between two steps: others want the disk, too."""
_LOOK_SECONDS = 10.0


class Retention:
    """Deletes the oldest of the finished jobs, beyond a number of them."""

    def __init__(
        self, store: Store, folder: Path, keep: int, needed: Callable[[], Collection[int]]
    ) -> None:
        """Prepare.

        Args:
            store: The queue on disk.
            folder: With a folder for each job.
            keep: So many finished jobs stay.
            needed: Jobs that others wait for, which stay as well.
        """
        self._store, self._folder, self._keep, self._needed = store, folder, keep, needed

    async def run(self) -> None:
        """Do so for ever."""
        while True:
            deleted = 0
            try:
                deleted = await self.step()
            except UnavailableError as error:
                _log.error("%s", error)
            await asyncio.sleep(_STEP_SECONDS if deleted else _LOOK_SECONDS)

    async def step(self) -> int:
        """Delete some jobs with all that is kept of them; returns how many.

        Raises:
            UnavailableError: If the database cannot be written.
        """
        needed = self._needed()
        old = await self._store.read(
            lambda connection: table.oldest_over(connection, self._keep, _STEP + len(needed))
        )
        numbers = [number for number in old if number not in needed][:_STEP]
        if numbers:
            await asyncio.to_thread(self._delete_folders, numbers)
            await self._store.write(lambda connection: table.delete(connection, numbers))
        return len(numbers)

    def _delete_folders(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            folder = self._folder / str(number)
            with suppress(FileNotFoundError):
                try:
                    shutil.rmtree(folder)
                except FileNotFoundError:
                    raise
                except OSError as error:
                    _log.error("%s cannot be deleted: %s", folder, error)


def tidy(folder: Path, newest: int | None = None) -> None:
    """Delete what nobody needs any more of a job's attempts, and the oldest beyond a few.

    Args:
        folder: Of the job.
        newest: Its attempt that is not over, if there is one: that is let be.
    """
    with suppress(OSError):
        attempts = [int(one.name) for one in folder.iterdir() if one.name.isdecimal()]
        last = max(attempts, default=0) if newest is None else newest
        for attempt in attempts:
            place = folder / str(attempt)
            if attempt <= last - KEPT_ATTEMPTS:
                shutil.rmtree(place, ignore_errors=True)
            elif newest is None or attempt < newest:
                for file in place.iterdir():
                    if file.name not in KEPT_FILES:
                        file.unlink(missing_ok=True)
