"""How it ended, on the disk, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

ENDED = "ended.json"
_TEMPORARY = "ended.tmp"
_ROOM_BYTES = 4096
_LONGEST_REASON = 500
"""Bytes; written as JSON they may be six times as many, and still fit."""


def take_room() -> None:
    """Take the space now: a disk that is full at the end then does not matter."""
    with contextlib.suppress(OSError), synced(_TEMPORARY) as fd:
        os.posix_fallocate(fd, 0, _ROOM_BYTES)


@contextlib.contextmanager
def synced(name: str) -> Iterator[int]:
    """Write a file that is on the disk, with its name, afterwards."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd
        os.fsync(fd)
    finally:
        os.close(fd)
    _sync_folder()


def _sync_folder() -> None:
    folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(folder)
    os.close(folder)


def write_ended(result: dict[str, Any]) -> None:
    """Put ``ended.json`` in place, whole."""
    reason = result["reason"].encode(errors="replace")[:_LONGEST_REASON]
    result["reason"] = reason.decode(errors="ignore")
    with synced(_TEMPORARY) as fd:
        data = json.dumps(result).encode()
        os.write(fd, data.ljust(_ROOM_BYTES))  # spaces: JSON does not mind
    os.replace(_TEMPORARY, ENDED)
    _sync_folder()
