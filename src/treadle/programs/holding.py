"""Pausing a job where it waits anyway: at the gates of its GPUs. Its memory stays."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from treadle.devices.checkpoint import CheckpointError, ProcessLocks
from treadle.devices.mps.home import PIPE_VARIABLE
from treadle.programs.attempt import MARK
from treadle.turnstile import Member, PageSnapshot, Turnstile, TurnstileError, join
from treadle.turnstile.member import Seat

_NAME = "node"
_LONGEST_NAME_BYTES = 31
_JOBS_SEAT = re.compile(r"#[0-9]+\Z")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LongLaunch:
    """A launch that has been running for long, and who had to wait for it."""

    gpu: str
    pid: int
    since_ns: int
    """When it was seen to have begun: tells it from others of its process."""
    seconds: float
    kernel: str | None
    """What it is called; None where nobody knows."""
    victims: tuple[str, ...]
    """The more urgent members of the turnstile that had work then."""


class Locks(Protocol):
    """Locks processes, as ``ProcessLocks`` does."""

    def lock(self, pid: int) -> None: ...

    def unlock(self, pid: int) -> None: ...


class Gatekeeper:
    """Holds jobs at the turnstiles. It sits there itself, so that its holds fall with the node.

    Its methods may block for a moment: they are not for an event loop.
    """

    def __init__(self, folder: Path, queue: str = "", locks: Locks | None = None) -> None:
        """Prepare.

        Args:
            folder: Of the turnstiles.
            queue: Whose jobs are held, as ``queue_name`` tells: two nodes may share turnstiles.
            locks: Locks processes.
        """
        self._folder, self._queue = folder, queue
        self._locks: Locks = locks or ProcessLocks()
        self._seats: dict[str, Seat] = {}
        self._lock = threading.Lock()

    def memory_bytes(self, uuid: str) -> int:
        """What all jobs that sit at a GPU's turnstile have taken of its memory."""
        with contextlib.suppress(TurnstileError, OSError):
            with Turnstile.open(self._folder, uuid, create=False) as turnstile:
                members = turnstile.snapshot().members
            return sum(m.memory_used_bytes for m in members if _JOBS_SEAT.search(m.name))
        return 0

    def hold(self, number: int, gpus: Sequence[str]) -> int:
        """Hold a job's processes wherever they sit now; returns at how many seats.

        A process that comes to sit later is not held: call it again.
        """
        return self._each(number, gpus, on=True)

    def let_go(self, number: int, gpus: Sequence[str]) -> int:
        """Let a job's processes go on; returns how many there are."""
        return self._each(number, gpus, on=False)

    def long_launches(self, number: int, gpus: Sequence[str], seconds: float) -> list[LongLaunch]:
        """Those launches of a job that have been running for at least so long."""
        found: list[LongLaunch] = []
        for uuid in gpus:
            with contextlib.suppress(TurnstileError, OSError):
                found += self._long_at(uuid, f"#{number}", seconds)
        return found

    def _long_at(self, uuid: str, tail: str, seconds: float) -> Iterator[LongLaunch]:
        with Turnstile.open(self._folder, uuid, create=False) as turnstile:
            snapshot, now_ns = turnstile.snapshot(), time.monotonic_ns()
            for member in snapshot.members:
                since_ns = member.running_since_ns
                ran = 0.0 if since_ns is None else (now_ns - since_ns) / 1e9
                if since_ns is None or ran < seconds or not member.name.endswith(tail):
                    continue
                if not self._is_anothers(member.pid):
                    yield LongLaunch(
                        gpu=uuid,
                        pid=member.pid,
                        since_ns=since_ns,
                        seconds=ran,
                        kernel=turnstile.running_name(member),
                        victims=_victims(snapshot, member),
                    )

    def lock(self, number: int, gpus: Sequence[str]) -> str:
        """Lock the processes of a job by process checkpoint; why that failed, empty if it did not.

        Such a lock does not fall with the node.
        """
        try:
            pids = self._lockable(number, gpus)
            if not pids:
                return "none of its processes can be told for sure"
            for pid in pids:
                self._locks.lock(pid)
        except CheckpointError as error:
            return str(error)
        return ""

    def unlock(self, number: int, gpus: Sequence[str]) -> str:
        """Let those processes of a job go on that are locked; why that failed, or nothing."""
        problems = []
        for pid in self._lockable(number, gpus, mps=False):
            try:
                self._locks.unlock(pid)
            except CheckpointError as error:
                problems.append(f"process {pid}: {error}")
        return "; ".join(problems)

    def _lockable(self, number: int, gpus: Sequence[str], *, mps: bool = True) -> list[int]:
        """The processes that sit at the gates and say themselves that they are of this job.

        Raises:
            CheckpointError: If one of them is a client of MPS, and that matters.
        """
        found: set[int] = set()
        start, end = f"{MARK}={number}.".encode(), f".{self._queue}".encode()
        for uuid in gpus:
            with contextlib.suppress(TurnstileError, OSError):
                with Turnstile.open(self._folder, uuid, create=False) as turnstile:
                    members = turnstile.snapshot().members
                for member in members:
                    variables = _variables(member.pid) if member.name.endswith(f"#{number}") else []
                    if not any(one.startswith(start) and one.endswith(end) for one in variables):
                        continue
                    under_mps = any(
                        one.startswith(f"{PIPE_VARIABLE}=".encode()) for one in variables
                    )
                    if under_mps and mps:
                        raise CheckpointError("process checkpoint does not work under MPS")
                    if not under_mps:
                        found.add(member.pid)
        return sorted(found)

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
        start, end = f"{MARK}=".encode(), f".{self._queue}".encode()
        return any(one.startswith(start) and not one.endswith(end) for one in _variables(pid))


def _variables(pid: int) -> list[bytes]:
    """With which a process was started; none where nobody here can tell."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _victims(page: PageSnapshot, culprit: Member) -> tuple[str, ...]:
    """The more urgent ones that have work while that one has the GPU."""
    if culprit.priority is None:
        return ()
    return tuple(
        f"{member.name} ({member.pid})"
        for member in page.members
        if member.priority is not None
        and member.priority < culprit.priority
        and (member.busy or member.waiting)
    )
