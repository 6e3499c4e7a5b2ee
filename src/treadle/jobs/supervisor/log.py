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
        left = len(data)
        try:
            if self._size + len(data) > self._half and self._size:
                self._turn()
            view = memoryview(data)[-self._half :]
            left = len(view)
            while view:
                written = os.write(self._fd, view)
                self._size += written
                view = view[written:]
                left = len(view)
        except OSError:
            if whole and left < len(data):
                with contextlib.suppress(OSError):
                    self._size -= len(data) - left
                    os.ftruncate(self._fd, self._size)
        return left

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
