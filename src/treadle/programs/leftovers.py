"""Ends what is left of an attempt whose supervisor was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

_ROUNDS = 100
_ROUND_SECONDS = 0.02
"""Between two looks: some fork meanwhile, and what is killed needs a moment to be gone."""
_EMPTY_ROUNDS = 3
"""One that was forked while the list was read may not be in it."""
_Seen = Mapping[int, tuple[int, int]]
"""Parent and session of every process."""


def end_marked(mark: str) -> int:
    """Kill what is left of an attempt; returns how many processes.

    They are known by the mark in their environment: process groups can be left, and numbers are
    used again. With them go their descendants, and who shares a session with one of them: a
    program may clear its environment.

    Args:
        mark: ``NAME=value``.
    """
    killed: set[int] = set()
    empty = 0
    for _ in range(_ROUNDS):
        found = _left(mark.encode())
        empty = 0 if found else empty + 1
        if empty == _EMPTY_ROUNDS:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if found:
            time.sleep(_ROUND_SECONDS)
    return len(killed)


def _left(mark: bytes) -> set[int]:
    """Find them. Those that are marked stand still from then on: what they start is known."""
    seen: dict[int, tuple[int, int]] = {}
    looked_at: set[int] = set()
    marked = set()
    # Some are started while the list is read: until there is nobody new.
    while new := _numbers() - looked_at:
        looked_at |= new
        for pid in sorted(new, reverse=True):
            with contextlib.suppress(OSError):
                folder = Path("/proc") / str(pid)
                state, parent, _, session, *_ = (
                    (folder / "stat").read_bytes().rpartition(b")")[2].split()
                )
                if state in b"ZX":
                    continue
                seen[pid] = int(parent), int(session)
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    marked.add(pid)
                    if pid != os.getpid():
                        os.kill(pid, signal.SIGSTOP)
    return _with_relatives(marked, seen) - {os.getpid()}


def _numbers() -> set[int]:
    with os.scandir("/proc") as entries:
        return {int(entry.name) for entry in entries if entry.name.isdigit()}


def _with_relatives(marked: set[int], seen: _Seen) -> set[int]:
    """The marked ones, who shares a session that is theirs, and all their descendants."""
    sessions = {seen[pid][1] for pid in marked}
    # Session 0 is of those whose leader is in another container: whoever that is.
    theirs = {one for one in sessions if one and (one in marked or one not in seen)}
    found = marked | {pid for pid, (_, session) in seen.items() if session in theirs}
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in seen.items():
        children.setdefault(parent, []).append(pid)
    open_ = [*found]
    while open_:
        for child in children.get(open_.pop(), ()):
            if child not in found:
                found.add(child)
                open_.append(child)
    return found
