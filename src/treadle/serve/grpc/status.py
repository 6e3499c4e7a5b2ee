"""gRPC answers: the one place where errors become status codes."""

from __future__ import annotations

import math

from grpc import StatusCode

from treadle.errors import (
    AbandonedError,
    DeadlineError,
    ForbiddenError,
    InvalidRequestError,
    ModelError,
    ModelLoadError,
    NotFoundError,
    RequestError,
    TooLargeError,
    UnavailableError,
)

# The first class that matches counts. ``docs/protocol.md`` has the table.
_STATUS: tuple[tuple[type[RequestError], StatusCode], ...] = (
    (TooLargeError, StatusCode.RESOURCE_EXHAUSTED),
    (InvalidRequestError, StatusCode.INVALID_ARGUMENT),
    (ModelLoadError, StatusCode.FAILED_PRECONDITION),
    (ForbiddenError, StatusCode.PERMISSION_DENIED),
    (NotFoundError, StatusCode.NOT_FOUND),
    (DeadlineError, StatusCode.DEADLINE_EXCEEDED),
    (UnavailableError, StatusCode.UNAVAILABLE),
    (ModelError, StatusCode.INTERNAL),
    (AbandonedError, StatusCode.CANCELLED),
)

Metadata = tuple[tuple[str, str], ...]


def status_of(error: RequestError) -> StatusCode:
    """The status code that an error is answered with."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def trailing_metadata(error: RequestError) -> Metadata:
    """When to try again, as the retry design (gRFC A6) and as HTTP say it."""
    if not isinstance(error, UnavailableError) or error.retry_after_seconds is None:
        return ()
    seconds = error.retry_after_seconds
    return (
        ("grpc-retry-pushback-ms", str(max(1, math.ceil(seconds * 1000)))),
        ("retry-after", str(max(1, math.ceil(seconds)))),
    )
