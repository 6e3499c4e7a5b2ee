"""Connections for clients that do not keep to the rules."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from http.client import HTTPMessage, HTTPResponse
from typing import Any

import orjson

from .nodes import DEADLINE_SECONDS, RunningNode

_STUCK_SECONDS = 2.0


class Wire:
    """A TCP connection to a node, and the bytes on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, *parts: bytes) -> None:
        self._connection.sendall(b"".join(parts))

    def send_if_possible(self, part: bytes) -> bool:
        """Send, unless the other side has hung up."""
        try:
            self._connection.sendall(part)
        except OSError:
            return False
        return True

    def shut_down_writing(self) -> None:
        self._connection.shutdown(socket.SHUT_WR)

    def can_send(self, part: bytes, *, times: int) -> bool:
        """Whether the node takes ``part`` so many times, without hanging up or stopping to read."""
        self._connection.settimeout(_STUCK_SECONDS)
        return all(self.send_if_possible(part) for _ in range(times))

    def answer(self) -> tuple[int, HTTPMessage, Any]:
        """Read one answer: its status, headers and JSON body."""
        response = HTTPResponse(self._connection)
        try:
            response.begin()
            content = response.read()
            return response.status, response.headers, orjson.loads(content) if content else None
        finally:
            response.close()

    def receive(self, most: int) -> bytes:
        """The next bytes that come; empty once the node has hung up."""
        return self._connection.recv(most)

    def read_to_the_end(self) -> bytes:
        """Everything until the node hangs up, which it must do; a reset counts as that."""
        received = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while chunk := self._connection.recv(1 << 16):
                received += chunk
        return bytes(received)


@contextlib.contextmanager
def wire(node: RunningNode) -> Iterator[Wire]:
    with socket.create_connection(("127.0.0.1", node.port), DEADLINE_SECONDS) as connection:
        yield Wire(connection)


def head(path: str, headers: Mapping[str, object] | None = None, *, method: str = "POST") -> bytes:
    """The first line and the headers of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: node"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
