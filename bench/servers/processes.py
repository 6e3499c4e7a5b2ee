"""Servers as subprocesses: start, wait until ready, pause, resume, and always stop."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.servers.errors import BenchError

READY_SECONDS = 90.0
"""How long a server may take from its start until it is ready."""
STOP_SECONDS = 8.0
"""How long a server may take to stop before it is killed."""
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
_SETTINGS = ("TREADLE_", "MLSERVER_", "LIT_", "LITSERVE_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one server, and where it answers."""

    command: list[str]
    folder: Path
    """Working folder; holds the server's files and its log."""
    ready_url: str
    """Gives status 200 to GET once the model can be asked."""
    url: str
    """Takes the requests, by POST."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables beside the inherited ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


def request(
    url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send one request: POST with a body, else GET.

    Raises:
        OSError: If no connection could be made.
        http.client.HTTPException: If the answer was no HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_SECONDS)
    with contextlib.closing(connection):
        method = "GET" if body is None else "POST"
        connection.request(method, parts.path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=names, body=response.read())


def _inherited() -> dict[str, str]:
    # What somebody set for a server of their own must not change the comparison.
    return {k: v for k, v in os.environ.items() if not k.startswith(_SETTINGS)}


class Server:
    """A running server in a process group of its own; leaving the context ends the whole group."""

    def __init__(self, name: str, launch: Launch) -> None:
        self.name = name
        self.url = launch.url
        self._ready_url = launch.ready_url
        self._log = launch.folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                launch.command,
                cwd=launch.folder,
                env={**_inherited(), **launch.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_ready(self) -> None:
        """Poll until the server says that it is ready.

        Raises:
            BenchError: If it ended, or was not ready within ``READY_SECONDS``.
        """
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self.failure(f"ended with status {self._process.returncode}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if request(self._ready_url).status == http.HTTPStatus.OK:
                    return
            time.sleep(_POLL_SECONDS)
        raise self.failure(f"not ready within {READY_SECONDS:.0f} s")

    def pause(self) -> None:
        """Stop every process of the server, so that it takes no time from the one measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on after ``pause``."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the whole process group, by force if asking does not help."""
        self.resume()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        # The leader may have left children behind, so the group is killed in either case.
        self._signal(signal.SIGKILL)
        self._process.wait()

    def failure(self, reason: str) -> BenchError:
        """An error to raise: the reason and the end of the server's log."""
        tail = self._log.read_text(errors="replace")[-4000:]
        return BenchError(f"{self.name}: {reason}; the end of its log:\n{tail}")

    def _signal(self, number: signal.Signals) -> None:
        # start_new_session made the leader's process id the group's, also after it has ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
