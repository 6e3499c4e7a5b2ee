"""What was done to the GPU, and when: the vocabulary of the scenario and its checks."""

from __future__ import annotations

from msgspec import Struct

Span = tuple[float, float]
"""Begin and end, monotonic seconds."""


class Load(Struct, frozen=True, kw_only=True):
    """One program that made load."""

    name: str
    pid: int
    memory_bytes: int
    """That it has allocated, without its context."""
    on: tuple[Span, ...]
    """When it kept the GPU busy."""
    launches: int
    """Multiplications; each is a kernel or more."""


class Seen(Struct, frozen=True, kw_only=True):
    """A process as the driver lists it."""

    pid: int | None
    name: str
    memory_bytes: int | None
    sm_activity: float | None
    reason: str


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the scenario. All its loads have their memory from its begin to its end."""

    name: str
    began: float = 0.0
    ended: float = 0.0
    loads: tuple[Load, ...] = ()
    processes: tuple[Seen, ...] = ()
    skipped: str = ""
    """Why it was left out; empty if it was not."""
    failed: bool = False
    """Whether that is for a program that failed, not for something that is not here."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that must hold. ``passed`` is None where nobody can tell, for a reason."""

    phase: str
    what: str
    passed: bool | None
    expected: str
    found: str


IDLE, WAVE, GATE, MPS, AFTER = "idle", "square wave", "turnstile", "MPS", "afterwards"
