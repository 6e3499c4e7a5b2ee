"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

DEADLINE_SECONDS = 30.0
"""How long anything that must happen may take here. Nothing that works comes near it."""


def eventually(look: Callable[[], _T | None], what: str) -> _T:
    """Look again and again until there is something; fail with ``what`` if it never comes."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s in vain: {what}"
        time.sleep(0.01)
    return found
