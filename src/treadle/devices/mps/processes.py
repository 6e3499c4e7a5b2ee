"""Processes told apart for good: by number and start, so that a number used again fools nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_SECONDS = 0.01
_STATE, _PARENT, _STARTED = 0, 1, 19
"""Fields of /proc/PID/stat, counted from the one behind the name: proc(5)."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process, alive or not."""

    pid: int
    started: int
    """Clock ticks between the machine's start and its own."""


def identify(pid: int) -> Process | None:
    """The process that has this number now; None if there is none, or it only waits for burial."""
    fields = _stat(pid)
    return None if fields is None else Process(pid, int(fields[_STARTED]))


def lives(process: Process) -> bool:
    """Whether it still runs. Another process under its number is not it."""
    return identify(process.pid) == process


def send(process: Process, signum: signal.Signals) -> None:
    """Signal it, and never another that has its number meanwhile.

    Nothing happens if it has ended, or may not be signalled.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(process.pid)
        try:
            # The handle is held: whoever is seen now is whom it signals.
            if lives(process):
                signal.pidfd_send_signal(handle, signum)
        finally:
            os.close(handle)


def wait_gone(processes: Collection[Process], seconds: float) -> bool:
    """Whether all of them have ended within so many seconds."""
    end = time.monotonic() + seconds
    while any(map(lives, processes)):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def variable(pid: int, name: str) -> str | None:
    """A variable that a process was started with; None if it has none of that name.

    Raises:
        OSError: If it has ended, or may not be asked: ``PermissionError``.
    """
    start = os.fsencode(f"{name}=")
    for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
        if entry.startswith(start):
            return os.fsdecode(entry[len(start) :])
    return None


def started_with(name: str, value: str) -> set[Process]:
    """Every process here that was started with a variable of that value, as far as may be seen."""
    found = set()
    for pid in _pids():
        with contextlib.suppress(OSError):
            if variable(pid, name) == value and (process := identify(pid)):
                found.add(process)
    return found


def is_child(pid: int, parent: Process) -> bool:
    """Whether a process was started by another that runs."""
    fields = _stat(pid)
    return fields is not None and int(fields[_PARENT]) == parent.pid and lives(parent)


def children(parent: Process) -> set[Process]:
    """The processes that it has started and that run."""
    found = set()
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and int(fields[_PARENT]) == parent.pid:
            found.add(Process(pid, int(fields[_STARTED])))
    return found if lives(parent) else set()


def epoch() -> str:
    """Within what process numbers mean something: one life of the machine, one pid namespace."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _stat(pid: int) -> list[str] | None:
    """What the kernel says of a process behind its name; None of one that has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[_STATE] in "ZX" else fields
