"""The node's end of the process that forks supervisors."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from treadle.programs import supervisor

_CODE = (
    "import os, sys; sys.path[:0] = [sys.argv[1]]; from supervisor.spawner import main; "
    "os._exit(main())"
)
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 64


class Spawner:
    """Starts supervisors. Its process is started when it is needed, and again if it dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None
        self._closed = False

    def start(self, folder: Path) -> None:
        """Start the supervisor of an attempt. Takes some milliseconds: not for the event loop.

        If nobody answers, this returns as if it were started: who follows the attempt finds out.

        Raises:
            OSError: If it cannot be started.
        """
        with self._lock:
            if self._closed:
                raise OSError(errno.ESHUTDOWN, "the node is ending")
            if self._door is None:
                self._open()
            assert self._door is not None
            answer = b""
            with contextlib.suppress(OSError):
                self._door.send(os.fsencode(folder))
                answer = self._door.recv(_LONGEST_ANSWER)
            if not answer:
                self._shut()
            elif number := int(answer):
                raise OSError(number, os.strerror(number))

    def close(self) -> None:
        """End its process, for good; supervisors live on."""
        with self._lock:
            self._closed = True
            self._shut()

    def _open(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            place = Path(supervisor.__file__).parent.parent
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", "-c", _CODE, str(place)],
                    stdin=theirs.fileno(),
                    env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(_ANSWER_SECONDS)
        self._door = ours

    def _shut(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._door = self._process = None
