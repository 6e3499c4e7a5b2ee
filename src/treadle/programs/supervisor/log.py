"""The output of a job, bounded."""

from __future__ import annotations

import contextlib
import os


class Log:
    """The output, bounded: two files of half the size, the older one replaced."""

    def __init__(self, most_bytes: int) -> None:
        self._half = max(1, most_bytes // 2)
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._unsaid = 0
        self.lost_bytes = 0
        """Of output, because the disk was full."""

    def write(self, data: bytes) -> None:
        """Append; what a full disk does not take is counted, and said once there is room."""
        self._say()
        lost = len(data) if self._unsaid else self._append(data)
        self._unsaid += lost
        self.lost_bytes += lost

    def close(self) -> None:
        """Say what is not said yet, if that can be written now."""
        self._say()

    def _say(self) -> None:
        if self._unsaid:
            text = f"\n[treadle: {self._unsaid} bytes of output were lost: the disk was full]\n"
            if not self._append(text.encode(), whole=True):
                self._unsaid = 0

    def _append(self, data: bytes, *, whole: bool = False) -> int:
        """Write; returns how many bytes were not taken. If ``whole``, all of them or none."""
        data = data[-2 * self._half :]
        left, before = data, self._size
        try:
            while left:
                piece = self._fitting(left)
                if not piece:
                    self._turn()
                    before = 0
                    continue
                written = os.write(self._fd, piece)
                self._size += written
                left = left[written:]
        except OSError:
            if whole and self._size > before:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, before)
                    self._size = before
        return len(left)

    def _fitting(self, data: bytes) -> bytes:
        """What of it goes into this file: whole lines, if it does not all fit."""
        room = self._half - self._size
        if len(data) <= room:
            return data
        lines = data[: data.rfind(b"\n", 0, room) + 1]
        return lines or (b"" if self._size else data[:room])

    def _turn(self) -> None:
        """Begin a new file. If that cannot be, the old one is still open."""
        with contextlib.suppress(FileNotFoundError):
            os.replace("log", "log.1")
        fd = self._open()
        os.close(self._fd)
        self._fd, self._size = fd, 0

    @staticmethod
    def _open() -> int:
        return os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
