"""HTTP connections that do not wait for ever.

uvicorn limits how long a connection may stay idle between two requests. A server that strangers
reach needs three more limits: for a connection that never sends a request, for one that never
ends its headers, and for a client that stops reading its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 64 << 10


class PatientButNotForever(HttpToolsProtocol):
    """uvicorn's HTTP protocol with those three limits, each ``timeout_keep_alive`` long."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._in_headers = True
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        # Still no request: what came was only headers, and too many of them.
        if self._in_headers and self._header_bytes > MAX_HEADER_BYTES:
            self.send_400_response("The request's headers are too long.")

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._header_bytes = True, 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._stalled is None:
            self._await_headers()

    def pause_writing(self) -> None:
        """The client reads slower than it is answered: give it a while to go on."""
        super().pause_writing()
        self._stop_waiting()
        self._await_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def _await_headers(self) -> None:
        self._stalled = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _await_reading(self, unread_before: int) -> None:
        def check() -> None:
            unread = self.transport.get_write_buffer_size()
            if unread < unread_before:
                self._await_reading(unread)
            else:
                self.transport.abort()

        self._stalled = self.loop.call_later(self.timeout_keep_alive, check)

    def _stop_waiting(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
