"""Reads a request's body within limits of size and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.types import Receive

from treadle.errors import TooLargeError, TooSlowError


class ClientGoneError(Exception):
    """The client hung up before it was answered: there is nobody to answer any more."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a request's body may cost."""

    max_bytes: int
    silence_seconds: float
    """How long a client may pause in the middle of its body."""


async def read_body(receive: Receive, limits: BodyLimits, announced: int | None) -> bytes:
    """Receive the whole body.

    Args:
        receive: The ASGI channel.
        limits: Size and time allowed.
        announced: The Content-Length, if the client sent one.

    Raises:
        TooLargeError: If it is, or is announced to be, larger than allowed.
        TooSlowError: If the client falls silent.
        ClientGoneError: If the client hangs up.
    """
    if announced is not None and announced > limits.max_bytes:
        raise _too_large(announced, limits)
    parts, size, more = [], 0, True
    while more:
        try:
            # A timeout costs more than reading a small body; most are there already.
            message = await asyncio.wait_for(receive(), limits.silence_seconds)
        except TimeoutError:
            raise TooSlowError(
                f"the body stopped after {size} bytes for {limits.silence_seconds:g} s"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limits.max_bytes:
            raise _too_large(size, limits)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(size: int, limits: BodyLimits) -> TooLargeError:
    return TooLargeError(f"the body has {size} bytes or more; allowed: {limits.max_bytes}")
