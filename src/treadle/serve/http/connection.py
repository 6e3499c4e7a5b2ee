"""HTTP connections that do not wait for ever, and that answer in one piece.

uvicorn limits how long a connection may stay idle between two requests. A server that strangers
reach needs more: limits for a connection that never sends a request, for headers that never end,
for a body that stops in the middle, and for a client that stops reading its answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 64 << 10
_PEER = struct.Struct("iII")


class PatientButNotForever(HttpToolsProtocol):
    """uvicorn's HTTP protocol with those limits, each ``silence_seconds`` long."""

    silence_seconds = 15.0
    """Set by a subclass: uvicorn makes the instances."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._body_bytes = 0
        self._receiving = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._peer: tuple[int, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._peer = _peer_of(transport.get_extra_info("socket"))
        super().connection_made(_Joining(transport, self.loop))  # type: ignore[arg-type]
        self._after_silence(self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._stop_timer()
        self._header_bytes += len(data)  # since the last request was whole
        self._feed(data)
        idle = self.cycle is None or self.cycle.response_complete
        if self._receiving:
            self._after_silence(self._give_up_on_body)
        elif self.transport.is_closing():
            return
        elif self._header_bytes > MAX_HEADER_BYTES:
            if idle:
                self._refuse(431, "the headers are too long")
            else:  # an answer to an earlier request is due first
                self.transport.abort()
        elif idle and self.timeout_keep_alive_task is None:
            self._after_silence(self.timeout_keep_alive_handler)

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._keep_to_this_protocol(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _keep_to_this_protocol(self, rest: bytes) -> None:
        """Read a request that offers an upgrade as if it did not: the parser skips its body."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is for proxies.")
            return
        head = [method, b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in (b"connection", b"upgrade", b"http2-settings"):
                head += (name, b": ", value, b"\r\n")
        if any(n == b"connection" and b"close" in v.lower() for n, v in self.headers):
            head.append(b"connection: close\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"".join([*head, b"\r\n", rest]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Who calls, as the kernel says: pid and user, on the local socket only.
        self.scope["peer"] = self._peer  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._receiving, self._body_bytes, self._header_bytes = True, 0, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._receiving, self._header_bytes = False, 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client reads slower than it is answered: it must go on reading."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def shutdown(self) -> None:
        """Called when the server ends: a request that is still coming is not waited for."""
        if self._receiving:
            self._refuse(503, "the server is shutting down")
        else:
            super().shutdown()

    def _watch_reading(self, unread_before: int) -> None:
        def check() -> None:
            unread = self.transport.get_write_buffer_size()
            if unread < unread_before:
                self._watch_reading(unread)
            else:
                self.transport.abort()

        # Not the timer for what comes in: a client that talks must read all the same.
        self._unread_timer = self.loop.call_later(self.silence_seconds, check)

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _give_up_on_body(self) -> None:
        if self.flow.read_paused:
            # It is not the client who waits: what it sent has not been taken in yet.
            self._after_silence(self._give_up_on_body)
            return
        self._refuse(
            408, f"the body stopped after {self._body_bytes} bytes for {self.silence_seconds:g} s"
        )

    def _refuse(self, status: int, reason: str) -> None:
        """Answer in place of the application, and hang up."""
        if self.cycle is None or not self.cycle.response_started:
            body = orjson.dumps({"error": reason})
            head = (
                f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _after_silence(self, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.silence_seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _peer_of(opened: socket.socket | None) -> tuple[int, int] | None:
    """The pid and user at the other end of a Unix socket."""
    if opened is None or opened.family != socket.AF_UNIX:
        return None
    pid, uid, _ = _PEER.unpack(opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid


class _Joining:
    """A transport whose writes of one turn of the event loop leave together.

    uvicorn writes the head and the body of an answer one after the other. A system call each
    would cost as much time as all that a small request costs in this program.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.writelines(parts)
