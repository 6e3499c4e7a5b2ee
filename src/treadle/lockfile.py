"""A file that one process holds. Its lock falls with that process: a stale one cannot be left."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import IO


class HeldError(Exception):
    """Another process holds the file."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"process {holder} holds it")
        self.holder = holder
        """Its number, as it has written it; in words if it has not."""


def hold(path: Path) -> IO[str]:
    """Hold a file until what this returns is closed. The number of this process stands in it.

    Raises:
        HeldError: If another process holds it.
        OSError: If it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.fdopen(os.open(path, flags, 0o600), "r+", encoding="ascii", errors="replace")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with lock:
            raise HeldError(lock.read().strip() or "unknown") from None
    except OSError:
        lock.close()
        raise
    with contextlib.suppress(OSError):  # a full disk is no reason
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    return lock
