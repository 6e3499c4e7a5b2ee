"""What a controller decided, and why."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from treadle.schedule.control.evidence import Standing
from treadle.schedule.control.misses import Misses


class Action(enum.Enum):
    """The kind of a decision."""

    HOLD = "hold"
    GIVE = "give"
    BACK_OFF = "back off"
    FALL_BACK = "fall back"
    TRY_ALONE = "try alone"
    PROTECT = "protect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step's."""

    at: float
    action: Action
    level: float
    """From most protective (0) over usual (0.5) to most generous (1)."""
    settings: Mapping[str, float]
    """By knob, in its unit."""
    changed: Mapping[str, tuple[float, float]]
    """What it turned: from and to."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task's objective as a person wants to know of it."""

    task: str
    objective_seconds: float
    standing: Standing
    words: str
    misses: Misses
    impossible: str = ""
    """Why the objective cannot be met; empty if that is not known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlReport:
    """A controller as a person wants to know of it."""

    gpu: str
    last: Decision
    last_change: Decision | None
    """The last that turned a knob; None: none did."""
    tasks: tuple[TaskReport, ...]
