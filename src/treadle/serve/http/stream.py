"""Answers in parts, as server-sent events.

Source: the event stream format at https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import contextlib

import orjson
from starlette.types import Receive, Scope, Send

from treadle.errors import AbandonedError, InvalidRequestError, RequestError
from treadle.serve.dataplane import DataPlane
from treadle.serve.http.answers import send_error
from treadle.serve.http.codec import Codec
from treadle.serve.http.infer import LONGEST_LOGGED_ID, InferEndpoint, log_error
from treadle.serve.http.watch import ClientWatch
from treadle.serve.model import ServedModel
from treadle.serve.request import InferenceRequest
from treadle.serve.sharedmemory import SharedMemory
from treadle.serve.tensors import Tensor
from treadle.serve.ticket import Ticket
from treadle.serve.tracing import Tracer


class StreamEndpoint:
    """``POST /v2/models/{name}[/versions/{version}]/infer_stream``."""

    def __init__(
        self,
        plane: DataPlane,
        infer: InferEndpoint,
        codec: Codec,
        shared: SharedMemory,
        tracer: Tracer | None,
    ) -> None:
        self._plane = plane
        self._infer = infer
        self._codec = codec
        self._shared = shared
        self._tracer = tracer
        self._clients = ClientWatch(plane.abandon)

    async def answer(
        self, name: str, version: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request for a model."""
        arrived, headers = self._plane.now(), dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        events = _Events(send)
        try:
            model, request = await self._infer.read(name, version, scope, headers, receive)
            request_id = request_id or request.id[:LONGEST_LOGGED_ID]
            self._check_is_json(model, request)
            ticket = self._plane.submit(model, request, arrived, parts=True)
            self._clients.watch(ticket, receive)
            try:
                async with contextlib.aclosing(self._plane.parts(ticket)) as parts:
                    async for outputs, final in parts:
                        await events.send(await self._encode(request, ticket, outputs, final))
            finally:
                self._clients.forget(ticket)
        except RequestError as error:
            gone = isinstance(error, AbandonedError)
            if not gone:
                log_error(name, request_id, error)
            if not events.begun:  # then an error still has a status of its own
                if not gone:
                    await send_error(send, error)
                return
            await events.send(orjson.dumps({"error": str(error)}), b"error")
        else:
            if self._tracer is not None:
                answer, now = ticket.answer.result(), self._plane.now()
                self._tracer.record(ticket, answer, headers, request_id, now)
        await events.end()

    def _check_is_json(self, model: ServedModel, request: InferenceRequest) -> None:
        if request.binary_outputs or any(output.binary for output in request.outputs):
            error = InvalidRequestError("events are JSON: outputs cannot be binary data there")
            self._plane.count_refusal(model, error)
            raise error

    async def _encode(
        self, request: InferenceRequest, ticket: Ticket, outputs: list[Tensor], final: bool
    ) -> bytes:
        model, tensors, binary = ticket.served, outputs, list[bool]()
        if outputs:
            tensors, binary = self._plane.select_outputs(request, outputs)
        if tensors and request.shares_memory:
            tensors = await self._shared.put(request, tensors)
        encoded = self._codec.encode_small(model, request.id, tensors, binary, final)
        if encoded is None:
            encoded = await self._codec.encode_large(model, request.id, tensors, binary, final)
        return encoded[0]


class _Events:
    """The answer as it is sent: its head goes out with the first event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def send(self, data: bytes, kind: bytes = b"") -> None:
        """Send one event; its data is one line."""
        if not self.begun:
            self.begun = True
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        event = (b"event: %b\n" % kind if kind else b"") + b"data: %b\n\n" % data
        await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
