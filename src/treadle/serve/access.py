"""Who may do what, whichever protocol they speak."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from treadle.errors import ForbiddenError


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What the operator has set."""

    token: str = ""
    """Asked for over TCP, unless empty."""
    open_model_control: bool = False
    """Anyone may load and unload models."""
    shared_memory: bool = False
    """Callers over TCP may name shared memory, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """How a request came in."""

    local: bool
    """Over a Unix socket, which its file permissions protect."""
    owner: bool = False
    """The node's own user or root, or who holds its token."""
    uid: int | None = None
    """Their user, where the kernel says so."""


def has_token(authorization: bytes, token: str) -> bool:
    """Whether an ``Authorization`` header carries the token."""
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token.encode())


def check_may_control(rules: AccessRules, caller: Caller) -> None:
    """Loading and unloading is for the owner: by the local socket, or with the token.

    Raises:
        ForbiddenError: If the caller may not.
    """
    if not (rules.open_model_control or caller.owner):
        raise ForbiddenError(
            "models are loaded and unloaded by the node's owner over its local socket, with its "
            "token, or by anyone if the configuration says [http] open_model_control = true"
        )


def may_share(rules: AccessRules, caller: Caller) -> bool:
    """Whether the caller may use shared memory."""
    return rules.shared_memory or (caller.local and caller.owner)


def check_may_share(rules: AccessRules, caller: Caller) -> None:
    """Shared memory is for those whose file permissions, or the operator, say so.

    Raises:
        ForbiddenError: If the caller may not use it.
    """
    if not may_share(rules, caller):
        raise ForbiddenError(
            "shared memory is for the node's owner on its local socket, or for everyone if the "
            "configuration says [http] shared_memory = true"
        )
