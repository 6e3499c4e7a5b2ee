"""Turnstile pages that a test writes as the gate would."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path

from treadle.turnstile.page import PAGE_BYTES, RECORD_BYTES, SEATED, Page, new_page

_F_OFD_SETLK = 37
_FLOCK = struct.Struct("hh4xqqi4x")  # of 64-bit Linux


class WrittenPage:
    """A page file and the seats that a test takes at it."""

    def __init__(self, folder: Path, uuid: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.path = folder / uuid
        self.path.write_bytes(new_page(uuid))
        self._file = self.path.open("r+b")
        self.page = Page.from_buffer(mmap.mmap(self._file.fileno(), PAGE_BYTES))

    def seat(self, index: int, priority: int, *, pid: int = 0, generation: int = 1) -> None:
        """Take a seat: it is held until the test ends."""
        record = self.page.record[index]
        record.state, record.class_, record.generation = SEATED, priority, generation
        record.pid = pid or os.getpid()
        record.launches = record.predicted_ns = record.waited_ns = record.marked_ns = 0
        self.page.members[priority] |= 1 << index
        # Of the open file, as the gate's: it stays when this process closes another of the page.
        start = Page.record.offset + index * RECORD_BYTES
        lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
        fcntl.fcntl(self._file, _F_OFD_SETLK, lock)

    def leave(self, index: int, priority: int) -> None:
        self.page.record[index].state = 0
        self.page.members[priority] &= ~(1 << index)

    def mark(self, index: int, priority: int) -> None:
        self.page.marks[priority] |= 1 << index

    def unmark(self, index: int, priority: int, marked_ns: int) -> None:
        self.page.marks[priority] &= ~(1 << index)
        self.page.record[index].marked_ns += marked_ns

    def close(self) -> None:
        self._file.close()
