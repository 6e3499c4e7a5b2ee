"""Reads a request's body within its limit. How long it may take, the connection watches."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from treadle.errors import AbandonedError, InvalidRequestError, TooLargeError

_SMALL_BODY_BYTES = 64 << 10
_T = TypeVar("_T")


async def read_body(receive: Receive, max_bytes: int, announced: int | None = None) -> bytes:
    """Receive the whole body.

    Args:
        receive: The ASGI channel.
        max_bytes: What is allowed.
        announced: The Content-Length, if the client sent one.

    Raises:
        TooLargeError: If it is, or is announced to be, larger than allowed.
        AbandonedError: If the client hangs up.
    """
    if announced is not None and announced > max_bytes:
        raise _too_large(announced, max_bytes)
    message = await receive()
    if not message.get("more_body") and "body" in message:
        body: bytes = message["body"]
        if len(body) > max_bytes:
            raise _too_large(len(body), max_bytes)
        return body
    parts, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise AbandonedError("the client hung up in the middle of its request")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(size, max_bytes)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


async def read_small_json(request: Request, kind: type[_T]) -> _T:
    """Receive a small JSON object; nothing at all stands for an empty one.

    Raises:
        InvalidRequestError: If it is no JSON of this kind.
        TooLargeError: If it is not small.
        AbandonedError: If the client hangs up.
    """
    body = await read_body(request.receive, _SMALL_BODY_BYTES)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"failed to parse the request JSON: {error}") from None


def _too_large(size: int, max_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body has {size} bytes or more; allowed: {max_bytes}")
