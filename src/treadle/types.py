"""The vocabulary. Every other module speaks in these words; see ``docs/structure.md``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Priority(enum.IntEnum):
    """The class of a task or a request. A smaller number is more urgent."""

    CRITICAL = 0
    NORMAL = 1
    BACKGROUND = 2

    @property
    def label(self) -> str:
        """The name as it is written in files, metrics and on the command line."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Priority:
        """Read a priority by name, in any case.

        Raises:
            ValueError: If ``text`` names none of the three classes.
        """
        try:
            return cls[text.upper()]
        except KeyError:
            allowed = ", ".join(p.label for p in cls)
            raise ValueError(f"unknown priority {text!r}; allowed: {allowed}") from None


class Mode(enum.StrEnum):
    """How a GPU is shared."""

    TURNS = "turns"
    """Time-slicing and the launch gate: work can be paused, evicted and moved."""
    PARALLEL = "parallel"
    """MPS and the launch gate: processes run at the same time, within caps set at their start."""


class TaskState(enum.StrEnum):
    """Where a task is in its life; ``docs/jobs.md`` has the diagram."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    """Held at the gate, or stopped: its memory stays where it is."""
    EVICTED = "evicted"
    """Its memory is on the host."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Nobody knows how it ended: who watched it was killed."""

    @property
    def over(self) -> bool:
        """Whether nothing follows any more."""
        return self in _OVER

    @property
    def placed(self) -> bool:
        """Whether it has a place on a device."""
        return self in _PLACED


_OVER = frozenset((TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST))
_PLACED = frozenset((TaskState.STARTING, TaskState.RUNNING, TaskState.PAUSED, TaskState.EVICTED))


class ActionKind(enum.StrEnum):
    """A step of a plan."""

    START = "start"
    PAUSE = "pause"
    """Hold it where it is; whoever owns it may hold it as well, and lets go of that alone."""
    RESUME = "resume"
    STOP = "stop"
    """End what runs of it, and queue it anew: that is not held against it."""


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan, for one task."""

    kind: ActionKind
    task: int
    devices: tuple[str, ...] = ()
    """UUIDs of the devices that it gets, for a start."""
    reason: str = ""
    """Why, in words."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now, and why the rest waits."""

    actions: tuple[Action, ...] = ()
    waiting: Mapping[int, str] = field(default_factory=dict)
    """Why a demand cannot start, by the number of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a task is promised."""

    p99_seconds: float | None = None
    """99 of 100 requests are answered within this many seconds of their arrival."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model, as the Open Inference Protocol describes it."""

    name: str
    datatype: str
    """Protocol name of the element type, such as ``FP32``, ``INT64`` or ``BYTES``."""
    shape: tuple[int, ...]
    """Dimensions; -1 where any size is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that computes: a physical GPU, the CPU, or a simulated GPU."""

    name: str
    kind: str
    cores: int
    """CPU cores that this process may use, or streaming multiprocessors."""
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """What a model factory is told about the place its model will run in."""

    name: str
    device: str
    threads: int
    """CPU threads that the model's share of the device comes to."""
    max_batch: int
    folder: Path
    """Folder of the configuration file; relative paths start here."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The model's free-form ``parameters`` table from the configuration file."""


NEAR_FRACTION = 0.8
"""A latency above this part of its objective is near it."""


class LatencyKind(enum.Enum):
    """How a latency is known."""

    SAMPLES = "samples"
    HISTOGRAM = "histogram"
    """Counts by bucket: exact at the buckets' bounds only."""
    SUMMARY = "summary"
    """A quantile that the server computed, over a window of its own that nobody tells."""
    MEAN = "mean"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWindow:
    """What is known of a task's latencies over one stretch of time, or why nothing is.

    ``over`` and ``near`` are the least and the most requests that can have taken longer than
    the objective and than ``NEAR_FRACTION`` of it: one number where latencies are samples, two
    where a bucket hides on which side they were.
    """

    at: float
    """Its end, in monotonic seconds."""
    window_seconds: float = 0.0
    kind: LatencyKind = LatencyKind.NONE
    count: int | None = None
    """Requests answered in it; None: nothing is known of it."""
    over: tuple[int, int] | None = None
    near: tuple[int, int] | None = None
    p99_seconds: float | None = None
    mean_seconds: float | None = None
    reason: str = ""
    """Why something is None."""

    @property
    def start(self) -> float:
        return self.at - self.window_seconds
