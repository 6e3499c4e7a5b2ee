"""The parent's end of one helper process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from treadle.monitor import ring
from treadle.monitor.directory import MAX_MESSAGE_BYTES, FromHelper, Setup, decode
from treadle.monitor.ring import Reader

_PRIVATE_VARIABLES = frozenset({"TREADLE_HTTP_TOKEN"})
_GRACE_SECONDS = 2.0


class Helper:
    """A running helper. Its memory can be read after it has died."""

    def __init__(self, setup: Setup) -> None:
        """Start it.

        Raises:
            OSError: If the system cannot.
        """
        self.memory = ring.create()
        try:
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            os.close(self.memory)
            raise
        env = {k: v for k, v in os.environ.items() if k not in _PRIVATE_VARIABLES}
        filled = msgspec.structs.replace(setup, socket=theirs.fileno(), memory=self.memory)
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - it is this program itself
                    # -P: modules in the folder that it was started in are not ours.
                    (
                        *(sys.executable, "-P", "-m", "treadle.monitor"),
                        msgspec.json.encode(filled).decode(),
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=env,
                    pass_fds=(theirs.fileno(), self.memory),
                )
        except OSError:
            self.control.close()
            os.close(self.memory)
            raise
        self.control.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def reader(self) -> Reader:
        """Look at its memory.

        Raises:
            RingError: If it is not laid out.
        """
        return Reader(self.memory)

    def messages(self) -> Iterator[FromHelper | None]:
        """What it has said and was not read yet; None at last if it has hung up."""
        while True:
            try:
                data = self.control.recv(MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                yield None
                return
            yield decode(data)

    def end(self, *, by_force: bool) -> str:
        """End it, and say how it ended. One that cannot be ended is left to itself."""
        self.control.close()
        if by_force:
            self._process.kill()
        try:
            code = self._process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            try:
                code = self._process.wait(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:  # inside the driver, where no signal reaches it
                code = None
        os.close(self.memory)
        if code is None:
            return "cannot be ended: the driver holds it"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"
