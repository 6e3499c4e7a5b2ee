"""The one place that touches the turnstile: its page, its knobs, and marks on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from treadle.errors import TreadleError
from treadle.turnstile import (
    KNOBS,
    Member,
    Seat,
    Turnstile,
    gate_library_path,
    join,
    load_gate_library,
)
from treadle.types import Priority

LIBRARY_VARIABLE = "TREADLE_GATE_LIBRARY"
_NANOSECONDS = 1e9
_MILLIONTHS = 1e6
_COUNTERS = (
    "launches",
    "copies",
    "predicted_seconds",
    "measured_seconds",
    "samples",
    "marks",
    "marked_seconds",
    "waits",
    "waited_seconds",
    "budget_waits",
    "budget_waited_seconds",
    "turns",
    "duty_passes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What the launch gate of one run consists of."""

    library: Path
    page: Path
    """The turnstile's page, the same for every member: these measurements use one GPU."""


class Marker(Protocol):
    """A critical member of a turnstile, as a cooperative server uses it."""

    def busy(self) -> None:
        """Close the turnstile to lower classes, before the first copy or launch."""
        ...

    def idle(self) -> None:
        """Open it again, once the device has finished and nobody waits."""
        ...


class NoMarker:
    """A server that knows of no turnstile."""

    def busy(self) -> None: ...

    def idle(self) -> None: ...


class SeatMarker:
    """What ``with treadle.critical()`` does, taken apart: one mark spans all that waits."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def busy(self) -> None:
        self._seat.mark()

    def idle(self) -> None:
        self._seat.unmark()


def find_library(given: Path | None) -> Path:
    """The launch gate's library: the one given, or the one that was built with treadle.

    Raises:
        TreadleError: If there is none.
    """
    library = gate_library_path() if given is None else given
    if not library.is_file():
        raise TreadleError(f"no launch gate at {library}")
    return library.resolve()


def shared_folder() -> str | None:
    """Where a page may lie: in memory. On a disk, writing it back would stall who writes it."""
    memory = Path("/dev/shm")  # noqa: S108  # shared memory is the point
    return str(memory) if os.access(memory, os.W_OK) else None


def open_gate(given: Path | None, folder: Path, name: str) -> Gate:
    """Find the library and make a page of that name in ``folder``.

    Raises:
        TreadleError: If there is no library, or the page cannot be made.
    """
    gate = Gate(library=find_library(given), page=folder / name)
    Turnstile.open(folder, gate.page.name).close()
    return gate


def join_as_critical(page: str, name: str) -> Marker:
    """Register this process with a turnstile as critical and cooperative.

    Raises:
        TreadleError: If it cannot be joined.
    """
    file = Path(page)
    return SeatMarker(join(file.parent, file.name, Priority.CRITICAL, name))


def leave() -> None:
    """Give up every seat of this process."""
    load_gate_library().leave()


def set_knobs(page: Path, knobs: Mapping[str, float]) -> None:
    """Turn the knobs of a page; those that are not named go back to what is usual.

    Args:
        page: The page's file.
        knobs: Seconds by name, ``budget`` for ``budget_ns``; and ``duty`` as a fraction.

    Raises:
        TreadleError: If a value is out of range.
    """
    wanted = {name: knob.usual for name, knob in KNOBS.items()}
    for name, value in knobs.items():
        if name == "duty":
            wanted["duty_ppm"] = round(value * _MILLIONTHS)
        else:
            wanted[f"{name}_ns"] = round(value * _NANOSECONDS)
    with Turnstile.open(page.parent, page.name) as turnstile:
        for name, number in wanted.items():
            turnstile.set_knob(name, number)


class Counters:
    """What the members of a page count from now on."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._before = {_seat(member): member for member in self._members()}

    def read(self) -> list[dict[str, Any]]:
        """The growth of every counter since then, for each member that did anything."""
        grown = []
        for member in self._members():
            before = self._before.get(_seat(member))
            counts = {
                name: round(getattr(member, name) - (getattr(before, name) if before else 0), 6)
                for name in _COUNTERS
            }
            if any(counts.values()):
                grown.append({"name": member.name, **counts})
        return grown

    def _members(self) -> tuple[Member, ...]:
        with Turnstile.open(self._page.parent, self._page.name) as turnstile:
            return turnstile.snapshot().members


def library_environment(given: Path | None) -> dict[str, str]:
    """What makes a process that marks itself load the same library."""
    found = given or os.environ.get(LIBRARY_VARIABLE)
    return {LIBRARY_VARIABLE: str(Path(found).resolve())} if found else {}


def _seat(member: Member) -> tuple[int, int]:
    return member.index, member.generation
