"""HTTP answers: the one place where errors become status codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Send

from treadle.errors import (
    AbandonedError,
    ForbiddenError,
    InvalidRequestError,
    ModelError,
    ModelLoadError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnavailableError,
)

# The first class that matches counts. Triton's mapping, where it has one.
_STATUS: tuple[tuple[type[RequestError], HTTPStatus], ...] = (
    (TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (InvalidRequestError, HTTPStatus.BAD_REQUEST),
    (ModelLoadError, HTTPStatus.BAD_REQUEST),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ModelError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (AbandonedError, HTTPStatus.BAD_REQUEST),  # nobody will read it
)
_JSON = (b"content-type", b"application/json")

Headers = list[tuple[bytes, bytes]]


class JSONAnswer(Response):
    """A JSON body, written by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def status_of(error: RequestError) -> HTTPStatus:
    """The status code that an error is answered with."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_headers(error: RequestError) -> Headers:
    """Headers beyond the usual ones: when to try again, whether the connection is spoilt."""
    headers: Headers = []
    if isinstance(error, UnavailableError) and error.retry_after_seconds is not None:
        seconds = max(1, math.ceil(error.retry_after_seconds))
        headers.append((b"retry-after", str(seconds).encode()))
    if isinstance(error, TooLargeError):
        # The rest of the body may still come, and must not be taken for the next request.
        headers.append((b"connection", b"close"))
    return headers


def error_answer(error: RequestError) -> JSONAnswer:
    """A whole answer for an error, in the protocol's form."""
    headers = {k.decode(): v.decode() for k, v in error_headers(error)}
    return JSONAnswer({"error": str(error)}, status_of(error), headers)


async def send_error(send: Send, error: RequestError) -> None:
    """Send ``error`` as the answer."""
    body = orjson.dumps({"error": str(error)})
    await send_answer(send, status_of(error), [_JSON, *error_headers(error)], [body])


async def send_answer(
    send: Send, status: int, headers: Headers, parts: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Send a status, headers and a body in parts; the length is added up here."""
    length = str(sum(map(len, parts))).encode()
    await send(
        {
            "type": "http.response.start",
            "status": int(status),
            "headers": [*headers, (b"content-length", length)],
        }
    )
    last = len(parts) - 1
    for number, part in enumerate(parts):
        await send({"type": "http.response.body", "body": part, "more_body": number < last})
