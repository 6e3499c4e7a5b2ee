"""The node's end of a supervisor: starts one, finds one again, talks to it, reads how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.programs.spawner import Spawner
from treadle.programs.supervisor.ending import ENDED
from treadle.programs.supervisor.program import BEGUN, LOCK, SOCKET, TASK

_log = logging.getLogger("treadle.jobs")
MARK = "TREADLE_MARK"
"""Variable of every process of a job: its number, its attempt, and whose queue it is in."""
_RETRY_SECONDS = 0.02
_TROUBLE_SECONDS = 1.0
_START_SECONDS = 30.0


class User(Struct, frozen=True, kw_only=True):
    """Whom a job runs as, where the node may choose."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class Task(Struct, frozen=True, kw_only=True):
    """What a supervisor is told."""

    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    umask: int
    time_limit_seconds: float | None
    grace_seconds: float
    log_bytes: int
    limits: dict[str, int] = {}
    """Names of resource limits, without RLIMIT_."""
    cgroup: str = ""
    """The control group that it enters; empty for none."""
    nice: int = 0
    progress: str = ""
    """The folder where it may report how far it has come; empty if there is none."""
    user: User | None = None


class Ending(Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    told: bool = False
    """Whether it was told to end."""
    interrupted: bool = False
    """Whether that was by somebody who ends all: the machine is shut down, say."""
    started_at: float = 0.0
    ended_at: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0


class Fate(enum.Enum):
    """What is known of an attempt that has no supervisor any more."""

    ENDED = enum.auto()
    NEVER_BEGUN = enum.auto()
    LOST = enum.auto()


class Attempt:
    """One attempt at a job, in a folder of its own."""

    def __init__(self, folder: Path, on_event: Callable[[dict[str, Any]], None]) -> None:
        """Prepare.

        Args:
            folder: Of this attempt.
            on_event: Told of ``running``, ``stopped``, ``continued`` and ``ended``.
        """
        self.folder = folder
        self._on_event = on_event
        self._writer: asyncio.StreamWriter | None = None
        self._started = False

    def start(self, task: Task, spawner: Spawner) -> None:
        """Start its supervisor. Takes some milliseconds: not for the event loop.

        Raises:
            OSError: If the folder cannot be made, or no process.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.folder / TASK
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(task))
        spawner.start(self.folder)
        self._started = True

    async def follow(self) -> tuple[Fate, Ending | None]:
        """Listen until the supervisor is gone; tells what is known of the attempt then."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if (reader := await self._connect()) is not None:
                await self._listen(reader)
            seconds = _RETRY_SECONDS
            try:
                fate = self.fate()
                if fate is not None:
                    return fate, self.ending()
            except OSError as error:  # the disk is full, or there are too many files
                _log.error("%s: %s", self.folder, error)
                seconds = _TROUBLE_SECONDS
            # Its supervisor lives, but does not answer: it is about to open or has just closed.
            if time.monotonic() > deadline:
                seconds = _TROUBLE_SECONDS
            await asyncio.sleep(seconds)

    def order(self, **order: Any) -> bool:
        """Tell the supervisor something; False if nobody hears it."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(json.dumps(order).encode() + b"\n")
        return True

    def fate(self) -> Fate | None:
        """What became of it; None while a supervisor lives. One that comes late does nothing.

        Raises:
            OSError: If that cannot be found out now.
        """
        try:
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return Fate.NEVER_BEGUN  # not even its folder is there
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            if (self.folder / BEGUN).exists():
                return Fate.ENDED if (self.folder / ENDED).exists() else Fate.LOST
            # An end without a beginning says to a supervisor that comes late: do nothing.
            (self.folder / ENDED).touch(mode=0o600)
            return Fate.NEVER_BEGUN
        finally:
            os.close(lock)

    @property
    def refused(self) -> bool:
        """Whether a supervisor that this node has started has not begun, for a lasting reason."""
        return self._started and (self.folder / TASK).exists()

    @property
    def delayed(self) -> bool:
        """Whether it has not begun for a reason that passes: the disk was full, say."""
        return self._started and not (self.folder / TASK).exists()

    def ending(self) -> Ending | None:
        """How it ended; None if nothing tells.

        Raises:
            OSError: If that cannot be read now.
        """
        try:
            return msgspec.json.decode((self.folder / ENDED).read_bytes(), type=Ending)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def complaint(self) -> str:
        """What the supervisor itself had to say last, if anything."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "supervisor.log").read_text(errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "")
        return ""

    async def _connect(self) -> asyncio.StreamReader | None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # a socket's path is short, the folder's may not be
                opened.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            finally:
                os.close(folder)
            reader, self._writer = await asyncio.open_unix_connection(sock=opened)
        except OSError:
            opened.close()
            return None
        except BaseException:  # cancelled: nobody else has it yet
            opened.close()
            raise
        return reader

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                with contextlib.suppress(ValueError):
                    self._on_event(json.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            if self._writer is not None:
                self._writer.close()
            self._writer = None
