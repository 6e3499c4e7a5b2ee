"""What a controller is told at each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.types import LatencyWindow, Objective, Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLatency:
    """A critical or normal task and the newest that is known of its latencies.

    A window that was handed in before, or that overlaps one that was, is not counted again:
    rolling windows may be handed in, but give evidence only as often as they are new.
    """

    task: str
    priority: Priority = Priority.CRITICAL
    objective: Objective = field(default_factory=Objective)
    latency: LatencyWindow | None = None
    """None: nothing has been read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """What the turnstile's counters tell. None: not known."""

    critical_busy_fraction: float | None = None
    background_fraction: float | None = None
    """Predicted GPU time of background work over time."""
    waiting: int | None = None
    """Members that wait at the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One GPU at one step."""

    tasks: tuple[TaskLatency, ...] = ()
    gate: GateView = field(default_factory=GateView)
    neighbours: tuple[str, ...] | None = None
    """Lower tasks that were there since the last step; None: not known."""

    @property
    def nobody_else(self) -> bool:
        """Whether it is known that there is no lower work to give time to, or to take it from."""
        return self.neighbours == ()

    @property
    def nothing_wanted(self) -> bool:
        """Whether it is known that lower work would not use what it were given."""
        return self.nobody_else or (self.gate.background_fraction == 0 and self.gate.waiting == 0)
