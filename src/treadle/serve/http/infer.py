"""The path that every inference request takes. It is kept short: it decides the throughput."""

from __future__ import annotations

import logging

from starlette.types import Receive, Scope, Send

from treadle.errors import (
    AbandonedError,
    InvalidRequestError,
    NotFoundError,
    RequestError,
    UnavailableError,
)
from treadle.serve.access import AccessRules, check_may_share
from treadle.serve.dataplane import DataPlane
from treadle.serve.http.answers import Headers, send_answer, send_error, status_of
from treadle.serve.http.body import read_body
from treadle.serve.http.callers import caller_of
from treadle.serve.http.codec import Codec
from treadle.serve.http.watch import ClientWatch
from treadle.serve.model import ServedModel
from treadle.serve.request import InferenceRequest
from treadle.serve.sharedmemory import SharedMemory
from treadle.serve.tensors import Buffer
from treadle.serve.ticket import Answer
from treadle.serve.tracing import Tracer

_log = logging.getLogger("treadle.http")

_HEADER_LENGTH = b"inference-header-content-length"
LONGEST_LOGGED_ID = 128
_JOINED_BYTES = 64 << 10

_JSON_HEADERS: Headers = [(b"content-type", b"application/json")]


class InferEndpoint:
    """``POST /v2/models/{name}[/versions/{version}]/infer``."""

    def __init__(
        self,
        plane: DataPlane,
        codec: Codec,
        shared: SharedMemory,
        rules: AccessRules,
        max_body_bytes: int,
        tracer: Tracer | None,
    ) -> None:
        self._plane = plane
        self._codec = codec
        self._shared = shared
        self._rules = rules
        self._max_body_bytes = max_body_bytes
        self._tracer = tracer
        self._clients = ClientWatch(plane.abandon)

    async def answer(
        self, name: str, version: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request for a model."""
        arrived, headers = self._plane.now(), dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        try:
            model, request = await self.read(name, version, scope, headers, receive)
            request_id = request_id or request.id[:LONGEST_LOGGED_ID]
            ticket = self._plane.submit(model, request, arrived)
            self._clients.watch(ticket, receive)
            try:
                answer = await self._plane.answer(ticket)
            finally:
                self._clients.forget(ticket)
            answer_headers, parts = await self._write(model, request, answer)
        except AbandonedError:
            return
        except RequestError as error:
            log_error(name, request_id, error)
            await send_error(send, error)
        else:
            if self._tracer is not None:
                self._tracer.record(ticket, answer, headers, request_id, self._plane.now())
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("answered", extra={"model": name, "request_id": request_id})
            await send_answer(send, 200, answer_headers, parts)

    async def read(
        self,
        name: str,
        version: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
    ) -> tuple[ServedModel, InferenceRequest]:
        """Find the model, and read and decode the request for it."""
        model = self._plane.find(name, version)
        try:
            request = await self._decode(model, headers, receive)
            if request.shares_memory:
                check_may_share(self._rules, caller_of(scope))
                await self._shared.fill(request)
            return model, request
        except RequestError as error:
            self._plane.count_refusal(model, error)
            raise

    async def _decode(
        self, model: ServedModel, headers: dict[bytes, bytes], receive: Receive
    ) -> InferenceRequest:
        announced = _number(headers, b"content-length")
        body = await read_body(receive, self._max_body_bytes, announced)
        if encoding := headers.get(b"content-encoding"):
            body = await self._codec.decompress(body, encoding.decode("latin-1").lower())
        header_nbytes = _number(headers, _HEADER_LENGTH)
        request = self._codec.decode_small(body, header_nbytes, model.inputs)
        if request is None:
            request = await self._codec.decode_large(body, header_nbytes)
        return request

    async def _write(
        self, model: ServedModel, request: InferenceRequest, answer: Answer
    ) -> tuple[Headers, list[Buffer]]:
        tensors, binary = self._plane.select_outputs(request, answer.outputs)
        if request.shares_memory:
            tensors = await self._shared.put(request, tensors)
        encoded = self._codec.encode_small(model, request.id, tensors, binary)
        if encoded is None:
            encoded = await self._codec.encode_large(model, request.id, tensors, binary)
        text, blobs = encoded
        if not blobs:
            return _JSON_HEADERS, [text]
        answer_headers = [
            (b"content-type", b"application/octet-stream"),
            (_HEADER_LENGTH, str(len(text)).encode()),
        ]
        parts = [text, *blobs]
        if sum(map(len, blobs)) <= _JOINED_BYTES:
            return answer_headers, [b"".join(parts)]
        return answer_headers, parts


def log_error(model: str, request_id: str, error: RequestError) -> None:
    """Note an error of a request as what it is: whose doing, and how often it may come."""
    level = logging.INFO if isinstance(error, UnavailableError) else logging.WARNING
    if isinstance(error, InvalidRequestError | NotFoundError):
        level = logging.DEBUG  # the client's doing, and any client can do it all day long
    extra = {"model": model, "status": int(status_of(error)), "request_id": request_id}
    _log.log(level, "%s", error, extra=extra)


def _number(headers: dict[bytes, bytes], name: bytes) -> int | None:
    """A header that holds a length; None if it is not there."""
    text = headers.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise InvalidRequestError(
            f"{name.decode()} is '{text.decode('latin-1')}'; allowed: a whole number from 0"
        )
    return int(text)
