"""The output of a job, read while it is written and its files are replaced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

_CHUNK_BYTES = 1 << 18


class LogReader:
    """Reads on from where it was, through the change of files.

    The file that is read stays open, so that no other one can get its number meanwhile.
    """

    def __init__(self, files: Sequence[Path], last_lines: int | None = None) -> None:
        """Begin at the oldest byte that there is, or so many lines before the end."""
        self._older, self._newer = files
        self._file: BinaryIO | None = None
        self._last_lines = last_lines

    def read(self) -> bytes:
        """What has come since the last call, in part; empty if nothing has."""
        if self._last_lines is not None:
            self._begin(self._last_lines)
            self._last_lines = None
        while True:
            if self._file is None:
                self._file = _open(self._older) or _open(self._newer)
                if self._file is None:
                    return b""
            # Where it is has to be known first: what is at its end then, stays so.
            following = self._following()
            if data := self._file.read(_CHUNK_BYTES):
                if following is not None:
                    following.close()
                return data
            if following is None:
                return b""
            self._file.close()
            self._file = following

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _following(self) -> BinaryIO | None:
        """The file after the one that is read, if that one is complete."""
        assert self._file is not None
        ours = _inode(self._file)
        newer = _open(self._newer)
        if newer is not None and _inode(newer) == ours:
            newer.close()
            return None
        older = _open(self._older)
        if older is None or _inode(older) == ours:
            if older is not None:
                older.close()
            return newer
        if newer is not None:
            newer.close()
        return older  # ours has been replaced, and perhaps more than ours

    def _begin(self, wanted: int) -> None:
        """Find the place to begin at."""
        for path in (self._newer, self._older):
            file = _open(path)
            if file is None:
                continue
            if self._file is not None:
                if _inode(file) == _inode(self._file):  # it has just been replaced
                    file.close()
                    return
                self._file.close()
            self._file = file
            offset, found = _line_start(file.fileno(), wanted)
            file.seek(offset)
            if found >= wanted:
                return
            wanted -= found


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


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
