"""The path that every inference request takes. It is kept short: it decides the throughput."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import Receive, Scope, Send

from treadle.errors import InvalidRequestError, RequestError, UnavailableError
from treadle.serve.dataplane import DataPlane
from treadle.serve.http.answers import Headers, send_answer, send_error, status_of
from treadle.serve.http.body import BodyLimits, ClientGoneError, read_body
from treadle.serve.http.codec import Codec
from treadle.serve.tensors import Buffer
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.tracing import Tracer

_log = logging.getLogger("treadle.http")

_HEADER_LENGTH = b"inference-header-content-length"
_WATCH_AFTER_SECONDS = 0.01
_JOINED_BYTES = 64 << 10

_JSON_HEADERS: Headers = [(b"content-type", b"application/json")]


class InferEndpoint:
    """``POST /v2/models/{name}[/versions/{version}]/infer``, as an ASGI application."""

    def __init__(
        self, plane: DataPlane, codec: Codec, limits: BodyLimits, tracer: Tracer | None
    ) -> None:
        self._plane = plane
        self._codec = codec
        self._limits = limits
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        name = scope["path_params"]["name"]
        headers = dict(scope["headers"])
        try:
            answer_headers, parts = await self._infer(scope, headers, receive)
        except ClientGoneError:
            return
        except RequestError as error:
            self._log_error(name, headers, error)
            await send_error(send, error)
        else:
            await send_answer(send, 200, answer_headers, parts)

    async def _infer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> tuple[Headers, list[Buffer]]:
        plane, arrived = self._plane, self._plane.now()
        path = scope["path_params"]
        model = plane.find(path["name"], path.get("version", ""))
        body = await read_body(receive, self._limits, _number(headers, b"content-length"))
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if encoding != "identity":
            body = await self._codec.decompress(body, encoding)
        header_nbytes = _number(headers, _HEADER_LENGTH)
        request = await self._codec.decode(body, header_nbytes, model.inputs)
        ticket = plane.submit(model, request, arrived)
        answer = await self._answer(ticket, receive)
        tensors, binary = plane.select_outputs(request, answer.outputs)
        text, blobs = await self._codec.encode(
            model.name, model.config.version, request.id, tensors, binary
        )
        if self._tracer is not None:
            self._tracer.record(ticket, answer, headers, request.id, plane.now())
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

    async def _answer(self, ticket: Ticket, receive: Receive) -> Answer:
        """Wait for the answer; give the place in the queue up when the client goes away."""
        waiting = asyncio.current_task()
        watch: asyncio.Task[None] | None = None
        gone = False

        async def watch_client() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            assert waiting is not None
            waiting.cancel()

        def start_watching() -> None:
            nonlocal watch
            watch = asyncio.create_task(watch_client())

        # Most answers come before a client could lose patience; a watch for each costs time.
        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, start_watching)
        try:
            return await self._plane.answer(ticket)
        except asyncio.CancelledError:
            if gone:
                raise ClientGoneError from None
            raise
        finally:
            timer.cancel()
            if watch is not None:
                watch.cancel()

    def _log_error(self, model: str, headers: dict[bytes, bytes], error: RequestError) -> None:
        level = logging.INFO if isinstance(error, UnavailableError) else logging.WARNING
        if isinstance(error, InvalidRequestError):
            level = logging.DEBUG  # the client's doing, and any client can do it all day long
        if _log.isEnabledFor(level):
            request_id = headers.get(b"x-request-id", b"").decode("latin-1")
            _log.log(
                level,
                "%s",
                error,
                extra={"model": model, "status": int(status_of(error)), "request_id": request_id},
            )


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
