"""The output of a job, bounded."""

from __future__ import annotations

import os


class Log:
    """The output, bounded: two files of half the size, the older one replaced."""

    def __init__(self, most_bytes: int) -> None:
        self._half = max(1, most_bytes // 2)
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._lost = 0

    def write(self, data: bytes) -> None:
        """Append; what a full disk does not take is counted, and said once there is room."""
        if self._lost:
            note = f"\n[treadle: {self._lost} bytes of output were lost: the disk was full]\n"
            data = note.encode() + data
        try:
            if self._size + len(data) > self._half and self._size:
                os.replace("log", "log.1")
                os.close(self._fd)
                self._fd, self._size = self._open(), 0
            view = memoryview(data)[-self._half :]
            while view:
                written = os.write(self._fd, view)
                self._size += written
                view = view[written:]
        except OSError:
            self._lost += len(data)
        else:
            self._lost = 0

    @staticmethod
    def _open() -> int:
        return os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
