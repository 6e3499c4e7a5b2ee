"""Who sent an HTTP request, as far as the connection says."""

from __future__ import annotations

from starlette.types import Scope

from treadle.serve.access import Caller


def is_local(scope: Scope) -> bool:
    """Whether a request came over the Unix socket, which its file permissions protect."""
    server = scope.get("server")
    return server is not None and server[1] is None


def caller_of(scope: Scope) -> Caller:
    """How a request came in."""
    peer = scope.get("peer")
    return Caller(
        local=is_local(scope),
        has_token=bool(scope.get("has_token")),
        uid=None if peer is None else peer[1],
    )
