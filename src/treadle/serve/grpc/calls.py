"""What every call goes through: who calls, and how an error ends it."""

from __future__ import annotations

import logging
from typing import Any

from grpc import StatusCode

from treadle.errors import InvalidRequestError, NotFoundError, RequestError, UnavailableError
from treadle.serve.access import AccessRules, Caller, has_token
from treadle.serve.grpc.status import status_of, trailing_metadata

_log = logging.getLogger("treadle.grpc")

_LONGEST_DETAILS_BYTES = 2000
"""Details travel as metadata, percent-encoded; clients take 8 KiB of that."""

Context = Any
"""A ``grpc.aio.ServicerContext``: the library has no types."""


class Gate:
    """Lets calls over TCP in only with the token, if there is one."""

    def __init__(self, rules: AccessRules, *, local: bool) -> None:
        """Make the gate of one listener.

        Args:
            rules: What the operator has set.
            local: Whether it listens on a Unix socket.
        """
        self.rules = rules
        self._local = local

    async def admit(self, context: Context, *, strangers: bool = False) -> Caller:
        """Who calls. Without the token, the call ends here, unless ``strangers`` may make it."""
        if self._local or not self.rules.token:
            # Its socket is the owner's alone.
            return Caller(local=self._local, owner=self._local)
        given = metadata_of(context).get("authorization", "")
        known = has_token(given.encode("latin-1", "replace"), self.rules.token)
        if not (known or strangers):
            await context.abort(
                StatusCode.UNAUTHENTICATED,
                "this server needs a token: send the metadata authorization: Bearer TOKEN",
                (("www-authenticate", "Bearer"),),
            )
        return Caller(local=False, owner=known)


def metadata_of(context: Context) -> dict[str, str]:
    """The call's metadata that is text."""
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}


async def abort(context: Context, error: RequestError) -> None:
    """End a call with an error. Does not return: the library raises."""
    await context.abort(status_of(error), _shortened(str(error)), trailing_metadata(error))


def log_error(model: str, request_id: str, error: RequestError) -> None:
    """Note an error of a request as what it is: whose doing, and how often it may come."""
    level = logging.INFO if isinstance(error, UnavailableError) else logging.WARNING
    if isinstance(error, InvalidRequestError | NotFoundError):
        level = logging.DEBUG  # the client's doing, and any client can do it all day long
    extra = {"model": model, "status": status_of(error).name, "request_id": request_id}
    _log.log(level, "%s", error, extra=extra)


def _shortened(text: str) -> str:
    """What fits into metadata, keeping the end: that is where the cause is."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= _LONGEST_DETAILS_BYTES:
        return encoded.decode()
    return "… " + encoded[-_LONGEST_DETAILS_BYTES:].decode(errors="ignore")
