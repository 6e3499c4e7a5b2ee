"""The output of a job, read while it is written and its files are replaced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_CHUNK_BYTES = 1 << 18


class LogReader:
    """Reads on from where it was, through the change of files."""

    def __init__(self, files: Sequence[Path], last_lines: int | None = None) -> None:
        """Begin at the oldest byte that there is, or so many lines before the end."""
        self._older, self._newer = files
        self._inode: int | None = None
        self._offset = 0
        self._first = True
        self._last_lines = last_lines

    def read(self) -> bytes:
        """What has come since the last call, in part; empty if nothing has."""
        if self._first:
            self._first = False
            self._begin()
        for path in (self._older, self._newer):
            try:
                with path.open("rb") as file:
                    inode = os.fstat(file.fileno()).st_ino
                    if self._inode is None:
                        self._inode, self._offset = inode, 0
                    if inode != self._inode:
                        continue
                    file.seek(self._offset)
                    if data := file.read(_CHUNK_BYTES):
                        self._offset += len(data)
                        return data
            except FileNotFoundError:
                continue
            if path == self._older:  # it is at its end, and nothing is added to it
                self._inode = None
                return self._next()
        return self._next() if self._lost() else b""

    def _next(self) -> bytes:
        """Go on with the newer file from its start."""
        try:
            with self._newer.open("rb") as file:
                self._inode = os.fstat(file.fileno()).st_ino
                data = file.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return b""
        self._offset = len(data)
        return data

    def _lost(self) -> bool:
        """Whether the file that was read has been replaced twice since."""
        inodes = set()
        for path in (self._older, self._newer):
            try:
                inodes.add(path.stat().st_ino)
            except FileNotFoundError:
                continue
        return self._inode is not None and bool(inodes) and self._inode not in inodes

    def _begin(self) -> None:
        """Find the place to begin at."""
        if self._last_lines is None:
            return
        wanted = self._last_lines
        for path in (self._newer, self._older):
            try:
                with path.open("rb") as file:
                    self._inode = os.fstat(file.fileno()).st_ino
                    self._offset, found = _line_start(file.fileno(), wanted)
            except FileNotFoundError:
                continue
            if found >= wanted:
                return
            wanted -= found


def _line_start(descriptor: int, lines: int) -> tuple[int, int]:
    """Where the last so many lines begin, and how many there are at most."""
    size = os.fstat(descriptor).st_size
    if lines == 0:
        return size, 0
    end, found = size, 0
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        block = os.pread(descriptor, end - start, start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if start + at == size - 1:
                continue  # the end of the last line
            found += 1
            if found == lines:
                return start + at + 1, found
        end = start
    return 0, found + (size > 0)
