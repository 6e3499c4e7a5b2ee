"""A page as people and control loops see it: who is there, and the knobs."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.turnstile.folder import open_page, page_file
from treadle.turnstile.page import (
    KNOBS,
    PAGE_BYTES,
    RECORD_BYTES,
    SEATED,
    Page,
    Record,
    TurnstileError,
    new_page,
    why_unusable,
)
from treadle.types import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process at the turnstile. Counters run since it joined."""

    index: int
    generation: int
    name: str
    pid: int
    """As the process sees itself: another container has other numbers."""
    priority: Priority | None
    """None: it looks after others and launches nothing."""
    busy: bool
    waiting: bool
    held: bool
    launches: int
    copies: int
    predicted_seconds: float
    """GPU time of its launches, as predicted."""
    measured_seconds: float
    """GPU time of those ``samples`` launches that were measured."""
    samples: int
    in_flight_seconds: float
    running_since_ns: int | None
    """When its oldest unfinished launch was seen to have begun, on the clock of
    ``time.monotonic_ns``; None: nothing runs, or its launches are not watched."""
    marks: int
    marked_seconds: float
    waits: int
    waited_seconds: float
    budget_waits: int
    budget_waited_seconds: float
    turns: int
    duty_passes: int
    memory_used_bytes: int
    memory_limit_bytes: int | None
    memory_failures: int

    @property
    def gpu_seconds(self) -> float:
        """GPU time that it has had, as well as that is known.

        Critical work never waits, so nobody learns how long its launches take: what counts is for
        how long it was marked.
        """
        if self.priority is Priority.CRITICAL:
            return max(self.predicted_seconds, self.marked_seconds)
        return self.predicted_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSnapshot:
    """A page at one moment. Words are read one after another, so they may disagree a little."""

    uuid: str
    generation: int
    members: tuple[Member, ...]
    knobs: Mapping[str, int]
    marks_set: int
    closed_for: frozenset[Priority]
    """The classes that may not launch now."""


_F_OFD_GETLK = 36
_MOST_NAME_BYTES = 4096
_FLOCK = struct.Struct("hh4xqqi4x")  # of 64-bit Linux


def _alive(descriptor: int, index: int) -> bool:
    """Whether someone holds the lock that makes a record a seat."""
    start = Page.record.offset + index * RECORD_BYTES
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
    answer = fcntl.fcntl(descriptor, _F_OFD_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _member(page: Page, index: int, record: Record, now_ns: int) -> Member:
    bit = 1 << index
    priority = Priority(record.class_) if record.class_ < len(Priority) else None
    in_flight = max(0, record.busy_until_ns - now_ns)
    return Member(
        index=index,
        generation=record.generation,
        name=record.name.decode(errors="replace"),
        pid=record.pid,
        priority=priority,
        busy=any(marks & bit for marks in page.marks),
        waiting=bool(page.waiting & bit),
        held=record.hold != 0,
        launches=record.launches,
        copies=record.copies,
        predicted_seconds=record.predicted_ns / 1e9,
        measured_seconds=record.measured_ns / 1e9,
        samples=record.samples,
        in_flight_seconds=in_flight / 1e9,
        running_since_ns=page.running_since_ns[index] or None,
        marks=record.marks_taken,
        marked_seconds=record.marked_ns / 1e9,
        waits=record.waits,
        waited_seconds=record.waited_ns / 1e9,
        budget_waits=record.budget_waits,
        budget_waited_seconds=record.budget_waited_ns / 1e9,
        turns=record.turns,
        duty_passes=record.duty_passes,
        memory_used_bytes=record.memory_used_bytes,
        memory_limit_bytes=record.memory_limit_bytes or None,
        memory_failures=record.memory_failures,
    )


def _create(path: Path, uuid: str) -> None:
    """Put a new page in its place whole, unless somebody else was quicker."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new_page(uuid))
            about = path.parent.stat()
            if about.st_mode & 0o020:
                os.chown(file.fileno(), -1, about.st_gid)
                os.fchmod(file.fileno(), 0o660)
        Path(path).hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        Path(fresh).unlink()


class Turnstile:
    """The page of one GPU, looked at from outside: this takes no seat."""

    def __init__(self, path: Path, memory: mmap.mmap, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._memory = memory
        self._page: Page | None = Page.from_buffer(memory)

    @classmethod
    def open(cls, folder: Path, uuid: str, *, create: bool = True) -> Self:
        """Open the page of the GPU ``uuid``, making it where there is none.

        Raises:
            TurnstileError: If there is no page and ``create`` is false, or the file is not a
                page of this version.
        """
        path = page_file(folder, uuid)
        try:
            if create and not path.exists():
                _create(path, uuid)
            with os.fdopen(open_page(path, os.O_RDWR), "r+b") as file:
                if os.fstat(file.fileno()).st_size < PAGE_BYTES:
                    raise TurnstileError(f"cannot use the turnstile {path}: it is too short")
                memory = mmap.mmap(file.fileno(), PAGE_BYTES)
                descriptor = os.dup(file.fileno())
        except OSError as error:
            raise TurnstileError(
                f"cannot open the turnstile {path}: {error.strerror or error}"
            ) from error
        if reason := why_unusable(Page.from_buffer_copy(memory)):
            memory.close()
            os.close(descriptor)
            raise TurnstileError(f"cannot use the turnstile {path}: {reason}")
        return cls(path, memory, descriptor)

    def close(self) -> None:
        if self._page is not None:
            self._page = None
            self._memory.close()
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _open_page(self) -> Page:
        if self._page is None:
            raise TurnstileError(f"the turnstile {self.path} was closed")
        return self._page

    def snapshot(self) -> PageSnapshot:
        """Who is there and alive, and the knobs."""
        page = Page.from_buffer_copy(self._memory)
        if reason := why_unusable(page):
            raise TurnstileError(f"cannot use the turnstile {self.path}: {reason}")
        now_ns = time.monotonic_ns()  # the clock of the page itself
        closed = {
            lower
            for lower in Priority
            for upper in Priority
            if upper < lower
            and (
                page.marks[upper]
                or (upper < len(page.closed_until_ns) and page.closed_until_ns[upper] > now_ns)
            )
        }
        return PageSnapshot(
            uuid=page.uuid.decode(errors="replace"),
            generation=page.generation,
            members=tuple(
                _member(page, index, record, now_ns)
                for index, record in enumerate(page.record)
                if record.state == SEATED and _alive(self._descriptor, index)
            ),
            knobs={name: page.knobs[knob.index] for name, knob in KNOBS.items()},
            marks_set=page.marks_set,
            closed_for=frozenset(closed),
        )

    def set_knob(self, name: str, value: int) -> None:
        """Change a knob, for everyone at this page, until someone changes it again.

        Raises:
            TurnstileError: If there is no such knob, or ``value`` is outside its range.
        """
        knob = KNOBS.get(name)
        if knob is None:
            raise TurnstileError(f"no knob {name!r}; there are {', '.join(KNOBS)}")
        if not knob.least <= value <= knob.most:
            raise TurnstileError(f"{name} is {knob.least} to {knob.most}, not {value}")
        self._open_page.knobs[knob.index] = value

    def running_name(self, member: Member) -> str | None:
        """What a member's oldest unfinished launch is called; None where nobody knows.

        It is known only some 50 ms after the launch has begun.
        """
        path = self.path.with_name(f".{self.path.name}.{member.index}")
        try:
            text = path.read_bytes()[:_MOST_NAME_BYTES].decode(errors="replace")
        except OSError:
            return None
        since, _, name = text.partition(" ")
        if since != str(member.running_since_ns) or not name.endswith("\n"):
            return None
        return name.rstrip("\n")

    def move(self, index: int, uuid: str) -> None:
        """Tell a member to go to the page of another GPU in the same folder.

        It goes at its first launch a second or more after it last looked.
        """
        page_file(self.path.parent, uuid)
        encoded = uuid.encode()
        if len(encoded) > Record.moved_to.size:
            raise TurnstileError(f"{uuid!r} is too long for a move")
        self._open_page.record[index].moved_to = encoded

    @contextmanager
    def knob(self, name: str, value: int) -> Iterator[None]:
        """Change a knob for a while."""
        before = self.snapshot().knobs[name]
        self.set_knob(name, value)
        try:
            yield
        finally:
            self.set_knob(name, before)
