"""Pausing a job where it waits anyway: at the gates of its GPUs. Its memory stays."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path

from treadle.programs.attempt import MARK
from treadle.turnstile import Turnstile, TurnstileError, join
from treadle.turnstile.member import Seat

_NAME = "node"
_LONGEST_NAME_BYTES = 31


def seat_name(name: str, number: int) -> str:
    """The name by which a job's processes sit at a turnstile: theirs alone, and readable."""
    tail = f"#{number}"
    room = _LONGEST_NAME_BYTES - len(tail)
    return name.encode()[:room].decode(errors="ignore") + tail


def queue_name(folder: Path) -> str:
    """Tells a queue from all others of this machine.

    Args:
        folder: Of the queue, which is there.
    """
    about = folder.stat()
    return f"{about.st_dev:x}.{about.st_ino:x}"


class Gatekeeper:
    """Holds jobs at the turnstiles. It sits there itself, so that its holds fall with the node.

    Its methods may block for a moment: they are not for an event loop.
    """

    def __init__(self, folder: Path, queue: str = "") -> None:
        """Prepare.

        Args:
            folder: Of the turnstiles.
            queue: Whose jobs are held, as ``queue_name`` tells: two nodes may share turnstiles.
        """
        self._folder, self._queue = folder, queue
        self._seats: dict[str, Seat] = {}
        self._lock = threading.Lock()

    def hold(self, number: int, gpus: Sequence[str]) -> int:
        """Hold a job's processes wherever they sit now; returns at how many seats.

        A process that comes to sit later is not held: call it again.
        """
        return self._each(number, gpus, on=True)

    def let_go(self, number: int, gpus: Sequence[str]) -> int:
        """Let a job's processes go on; returns how many there are."""
        return self._each(number, gpus, on=False)

    def _each(self, number: int, gpus: Sequence[str], *, on: bool) -> int:
        found, tail = 0, f"#{number}"
        with self._lock:
            for uuid in gpus:
                # Who cannot be seen cannot be held: the caller pauses it in another way.
                with contextlib.suppress(TurnstileError, OSError):
                    found += self._at(uuid, tail, on=on)
        return found

    def _at(self, uuid: str, tail: str, *, on: bool) -> int:
        with Turnstile.open(self._folder, uuid, create=False) as turnstile:
            members = [
                member
                for member in turnstile.snapshot().members
                if member.name.endswith(tail) and not self._is_anothers(member.pid)
            ]
        if not members:
            return 0
        seat = self._seats.get(uuid)
        if seat is None:
            seat = self._seats[uuid] = join(self._folder, uuid, None, _NAME)
        for member in members:
            if not on:
                seat.let_go(member.index)
            elif not member.held:
                seat.hold(member.index)
                seat.clear_marks(member.index)  # nobody waits for one who is held
        return len(members)

    def _is_anothers(self, pid: int) -> bool:
        """Whether a process says that it is of another queue; in a container nobody can tell."""
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        start, end = f"{MARK}=".encode(), f".{self._queue}".encode()
        return any(one.startswith(start) and not one.endswith(end) for one in variables)
