"""Who sent an HTTP request, as far as the connection says."""

from __future__ import annotations

import os

from starlette.types import Scope

from treadle.serve.access import Caller


def is_local(scope: Scope) -> bool:
    """Whether a request came over the Unix socket, which its file permissions protect."""
    server = scope.get("server")
    return server is not None and server[1] is None


def is_owners(scope: Scope) -> bool:
    """Whether a request is of the node's own user or root, or of who holds its token."""
    if is_local(scope):  # which a group may share: what counts is who has connected
        peer = scope.get("peer")
        return peer is not None and peer[1] in (0, os.geteuid())
    return bool(scope.get("has_token"))


def caller_of(scope: Scope) -> Caller:
    """How a request came in."""
    peer = scope.get("peer")
    return Caller(
        local=is_local(scope),
        owner=is_owners(scope),
        uid=None if peer is None else peer[1],
    )
