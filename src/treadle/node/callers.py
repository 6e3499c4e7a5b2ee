"""Who calls: as the kernel says on the local socket, or whoever has the token."""

from __future__ import annotations

import os
import pwd

from starlette.requests import Request

from treadle.errors import ForbiddenError
from treadle.programs.jobs import Caller
from treadle.serve.http.callers import is_local, is_owners


def caller_of(request: Request) -> Caller:
    """Who calls.

    Raises:
        ForbiddenError: If nobody knows.
    """
    peer = request.scope.get("peer")
    if is_local(request.scope) and peer is not None:
        pid, uid = peer
        return Caller(uid=uid, user=_name(uid), pid=pid, owner=is_owners(request.scope))
    if request.scope.get("has_token"):
        uid = os.geteuid()
        return Caller(uid=uid, user=_name(uid), owner=True)
    raise ForbiddenError("this is for the node's owner: use its local socket, or its token")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may not know the users of its host
        return ""
