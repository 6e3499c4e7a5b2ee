"""The folder of one MPS daemon: its pipes, its log, who owns it, and what is known of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from treadle.devices.mps.health import MpsError
from treadle.devices.mps.processes import Process, epoch

PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
PID_FILE = "nvidia-cuda-mps-control.pid"
_SOCKET_BYTES = 107
"""What a Unix socket's path may have, without the zero at its end: unix(7)."""
_LONGEST_SOCKET = "control_privileged"
_LAST_BYTES = 1 << 16
_FAULT = re.compile(r"\b(fatal|fault|faulted)\b", re.IGNORECASE)
_OPEN_AGAIN = re.compile(r"\bACTIVE\b|\bReady\b")


@dataclass(frozen=True, slots=True)
class Record:
    """A daemon that was started here."""

    process: Process
    gpus: tuple[str, ...]


class Home:
    """One daemon's folder. Who has taken it is alone in it, until it lets go or ends."""

    def __init__(self, folder: Path) -> None:
        """Say where; nothing is made yet.

        Raises:
            MpsError: If the path is too long for the daemon's sockets.
        """
        self.folder = folder.resolve()
        self.pipe_directory = self.folder / "pipe"
        self.log_directory = self.folder / "log"
        self._record = self.folder / "daemon.json"
        self._lock: int | None = None
        length = len(os.fsencode(self.pipe_directory / _LONGEST_SOCKET))
        if length > _SOCKET_BYTES:
            room = len(os.fsencode(self.folder)) - (length - _SOCKET_BYTES)
            raise MpsError(
                f"MPS: the folder {self.folder} is too long a path for a Unix socket in it;"
                f" allowed: {room} bytes"
            )

    @property
    def taken(self) -> bool:
        """Whether it is taken, by this object."""
        return self._lock is not None

    def take(self) -> None:
        """Make the folder if there is none, and keep others out of it.

        Raises:
            MpsError: If it is another user's, open to others, or taken; or cannot be made.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for place in (self.folder, self.pipe_directory, self.log_directory):
                if place.exists():
                    _check_private(place)
            while self._lock is None:
                self._lock = self._try_lock()
        except OSError as error:
            raise MpsError(f"MPS: {error}") from error

    def let_go(self) -> None:
        """Leave it to others, as it is."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def furnish(self) -> None:
        """Make pipe and log directory anew, empty and for this user alone.

        Raises:
            MpsError: If that cannot be done.
        """
        self.clear()
        try:
            for directory in (self.pipe_directory, self.log_directory):
                directory.mkdir(mode=0o700)
        except OSError as error:
            raise MpsError(f"MPS: {error}") from error

    def clear(self) -> None:
        """Remove what a daemon leaves behind, and what is known of it."""
        for directory in (self.pipe_directory, self.log_directory):
            shutil.rmtree(directory, ignore_errors=True)
        self._record.unlink(missing_ok=True)

    def leave(self) -> None:
        """Remove everything of ours and let go; the folder itself goes if nothing else is in it."""
        self.clear()
        (self.folder / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        self.let_go()

    def pid(self) -> int | None:
        """The process number that the daemon in the pipe directory has written down."""
        try:
            return int((self.pipe_directory / PID_FILE).read_text())
        except (OSError, ValueError):
            return None

    def remember(self, record: Record) -> None:
        """Write down which daemon is here, for whoever takes the folder later.

        Raises:
            MpsError: If that cannot be done.
        """
        content = {
            "pid": record.process.pid,
            "started": record.process.started,
            "epoch": epoch(),
            "gpus": record.gpus,
        }
        draft = self._record.with_suffix(".new")
        try:
            draft.write_text(json.dumps(content))
            draft.replace(self._record)
        except OSError as error:
            raise MpsError(f"MPS: {error}") from error

    def recall(self) -> Record | None:
        """Which daemon was here; None if none was, or not since the machine started."""
        try:
            content = json.loads(self._record.read_text())
            if content["epoch"] != epoch():
                return None
            process = Process(int(content["pid"]), int(content["started"]))
            return Record(process, tuple(map(str, content["gpus"])))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def last_words(self) -> str:
        """The end of the control daemon's log; empty if there is none."""
        lines = _tail(self.log_directory / "control.log")
        return lines[-1] if lines else ""

    def fault_line(self) -> str:
        """What the servers' log says of a fault, unless they took clients since then."""
        found = ""
        for line in _tail(self.log_directory / "server.log"):
            if _FAULT.search(line):
                found = line
            elif _OPEN_AGAIN.search(line):
                found = ""
        return found

    def _try_lock(self) -> int | None:
        """Lock the file that is there now; None if it went meanwhile: its owner had just left."""
        file = self.folder / "lock"
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except BlockingIOError:
            os.close(handle)
            raise MpsError(f"MPS: another process keeps a daemon in {self.folder}") from None
        except FileNotFoundError:
            pass
        os.close(handle)
        return None


def _check_private(folder: Path) -> None:
    about = folder.stat()
    if about.st_uid != os.geteuid():
        whose = user_name(about.st_uid)
        raise MpsError(f"MPS: the folder {folder} belongs to {whose} and is left alone")
    if about.st_mode & 0o022:
        raise MpsError(f"MPS: others may write the folder {folder}; allowed: its owner alone")


def user_name(uid: int) -> str:
    """A user as a person knows it."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"


def _tail(file: Path) -> list[str]:
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - _LAST_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return []
