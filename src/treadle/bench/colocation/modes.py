"""Ways of sharing a GPU, their knobs, and the environment that each gives a process.

A mode is written as a name and its knobs, so that a sweep is a list of cells:
``gate-coop``, ``gate-coop@budget=100us,linger=0``, ``mps-prio@threads=40``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from treadle.bench.colocation.gate import Gate
from treadle.errors import ConfigError
from treadle.turnstile import launch
from treadle.types import Priority

CRITICAL = "critical"
BACKGROUND = "background"

_UNITS = {"us": 1, "ms": 1000, "s": 1_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)?")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_GATE_DURATIONS = frozenset(
    ("budget", "quiet_budget", "quiet", "slack", "linger", "gap", "quantum", "grace")
)
"""Knobs of the turnstile that are durations."""
_DUTY = "duty"
"""Knob of the turnstile that is a fraction."""
_THREADS = "threads"
"""Share of the SMs that the background process may use under MPS, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the processes of a mode are started."""

    says: str
    gates_critical: bool = False
    gates_background: bool = False
    marks: bool = False
    """The critical process itself says when it is busy."""
    silent_member: bool = False
    """A critical process is registered that never asks for anything."""
    mps: bool = False
    yields: bool = False
    """The background process has the lower client priority of MPS."""


_GATED = "gate"
TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        "alone": Traits(says="native, gate-free, nothing beside it"),
        "timeslice": Traits(says="the driver's time-slicing"),
        "mps": Traits(says="MPS", mps=True),
        "mps-prio": Traits(says="MPS with client priority", mps=True, yields=True),
        _GATED: Traits(says="gate, unmodified server", gates_critical=True, gates_background=True),
        "gate-coop": Traits(says="gate, cooperative server", gates_background=True, marks=True),
        "mps-gate-coop": Traits(
            says="MPS with client priority, gate, cooperative server",
            gates_background=True,
            marks=True,
            mps=True,
            yields=True,
        ),
        "gate-cost": Traits(
            says="gate, a silent critical member", gates_background=True, silent_member=True
        ),
        "gate-open": Traits(says="gate, nobody critical", gates_background=True),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way of sharing and how its knobs are set."""

    name: str
    knobs: tuple[tuple[str, str], ...] = ()
    """Knob and value as written, sorted by knob."""

    @property
    def traits(self) -> Traits:
        return TRAITS[self.name]

    def __str__(self) -> str:
        knobs = ",".join(f"{knob}={value}" for knob, value in self.knobs)
        return f"{self.name}@{knobs}" if knobs else self.name


def parse_mode(text: str) -> Mode:
    """Read a mode as it is written in a cell's name.

    Raises:
        ConfigError: If there is no such mode, or it has no such knob or value.
    """
    name, _, written = text.partition("@")
    if name not in TRAITS:
        raise ConfigError(f"no mode {name!r}; there are {', '.join(TRAITS)}")
    knobs: dict[str, str] = {}
    for part in filter(None, written.split(",")):
        knob, _, value = part.partition("=")
        knobs[knob] = value
    mode = Mode(name=name, knobs=tuple(sorted(knobs.items())))
    _check_knobs(mode)
    return mode


def microseconds(text: str) -> int:
    """Read a duration such as ``100us``, ``1.5ms`` or ``0``, without unit in microseconds.

    Raises:
        ConfigError: If it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is no duration: write 100us, 1.5ms or 2s")
    return round(float(found[1]) * _UNITS[found[2] or "us"])


def turnstile_knobs(mode: Mode) -> dict[str, float]:
    """The knobs of a mode that are the turnstile's: seconds, and ``duty`` as a fraction.

    They are words on its page, so processes need not be started anew for a sweep.
    """
    knobs = {}
    for knob, value in mode.knobs:
        if knob in _GATE_DURATIONS:
            knobs[knob] = microseconds(value) / 1e6
        elif knob == _DUTY:
            knobs[knob] = float(value)
    return knobs


def gate_environment(member: str, *, name: str, gate: Gate) -> dict[str, str]:
    """The variables that put a process under the launch gate.

    Args:
        member: Class of the process, ``CRITICAL`` or ``BACKGROUND``.
        name: What the turnstile shows for it.
        gate: The gate of this run.
    """
    return launch.gate_environment(
        launch.GateOptions(
            priority=Priority.parse(member), folder=gate.page, name=name, library=gate.library
        )
    )


def mps_environment(mode: Mode, member: str, pipe_directory: Path) -> dict[str, str]:
    """The variables that make a process a client of an MPS daemon, by class."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory)}
    if member == BACKGROUND:
        if mode.traits.yields:
            environment["CUDA_MPS_CLIENT_PRIORITY"] = "1"  # 0 is normal, 1 below it
        threads = dict(mode.knobs).get(_THREADS)
        if threads is not None:
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = threads
    return environment


def _check_knobs(mode: Mode) -> None:
    for knob, value in mode.knobs:
        if knob in _GATE_DURATIONS and mode.traits.gates_background:
            microseconds(value)
        elif (knob == _DUTY and mode.traits.gates_background) or (
            knob == _THREADS and mode.traits.mps
        ):
            if not _NUMBER.fullmatch(value):
                raise ConfigError(f"{mode}: {value!r} is no number")
        else:
            raise ConfigError(f"{mode.name} has no knob {knob!r}")
