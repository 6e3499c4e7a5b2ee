"""What is played: the scenarios, their modes, and the configuration of each.

The rates are for one H200, from the service times that ``bench.colocation.workloads`` plans with:
on another GPU the same rates are another part of it. What a request took alone is in the results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from treadle.bench.colocation.workloads import BACKGROUNDS, CRITICALS, Scale
from treadle.bench.mix.load import Burst
from treadle.bench.mix.web import METRIC
from treadle.errors import ConfigError

_MIB = 1 << 20
_HEADROOM = 2
"""How much more memory than it is planned with a task may have."""
_SERVICE_SECONDS = {one.model: one.service_seconds for one in CRITICALS.values()}
_MEMORY_BYTES = {one.model: one.memory_bytes for one in CRITICALS.values()}
_TINY_RATE, _TINY_OBJECTIVE_SECONDS = 20.0, 0.1
_BURST_FACTOR = 5.0

FIXED: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "usual": {"budget_ns": 500_000, "linger_ns": 0, "duty_ppm": 10_000},
        "protective": {"budget_ns": 100_000, "linger_ns": 1_000_000, "duty_ppm": 10_000},
        "generous": {"budget_ns": 2_000_000, "linger_ns": 0, "duty_ppm": 300_000},
    }
)
"""Knobs that nobody turns, by mode."""
MODES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "control": ("service-alone", "trainer-alone", "controller", *FIXED),
        "burst": ("controller", *FIXED),
        "mix": ("services-alone", "trainers-alone", "turns", "parallel"),
    }
)
"""The modes of each scenario."""
SECONDS: Mapping[str, int] = MappingProxyType({"control": 60, "burst": 120, "mix": 120})
"""How long the load of each lasts, unless something else is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A service and its load."""

    name: str
    model: str
    rate: float
    p99_seconds: float
    bursts: tuple[Burst, ...] = ()

    @property
    def memory_bytes(self) -> int:
        return _HEADROOM * _MEMORY_BYTES[self.model]


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One scenario in one mode."""

    scenario: str
    mode: str
    seconds: int
    services: tuple[Serving, ...]
    trainers: tuple[str, ...]
    gpu_mode: str = "turns"
    steered: bool = True
    """Whether the node is told the objectives."""
    knobs: Mapping[str, int] = field(default_factory=dict)
    """Set on the page once all run."""


def _serving(name: str, model: str, load: float, p99_seconds: float) -> Serving:
    rate = load / _SERVICE_SECONDS[model]
    return Serving(name=name, model=model, rate=rate, p99_seconds=p99_seconds)


_CONTROL = _serving("server", "resnet", 0.2, 0.010)
_BURST = _serving("server", "resnet", 0.1, 0.010)  # five times as much is half of the GPU
_MIX: tuple[Serving, ...] = (
    _serving("vision", "resnet", 0.10, 0.025),
    _serving("frames", "resnet", 0.10, 0.050),
    _serving("search", "encoder", 0.15, 0.025),
    _serving("rank", "encoder", 0.10, 0.050),
    _serving("chat", "decoder", 0.15, 0.100),
)
_TRAINERS = ("trainer", "trainer-small")


def make_play(scenario: str, mode: str, seconds: int | None, scale: Scale) -> Play:
    """What is played in one mode of a scenario.

    Raises:
        ConfigError: If there is no such mode or scenario, or too little time for it.
    """
    if mode not in MODES.get(scenario, ()):
        known = "; ".join(f"{name}: {', '.join(modes)}" for name, modes in MODES.items())
        raise ConfigError(f"no mode {mode!r} of {scenario!r}; allowed: {known}")
    seconds = SECONDS[scenario] if seconds is None else seconds
    services: tuple[Serving, ...] = (_CONTROL,)
    trainers: tuple[str, ...] = _TRAINERS[:1]
    if scenario == "burst":
        services = (replace(_BURST, bursts=(_burst(seconds),)),)
    elif scenario == "mix":
        services, trainers = _MIX, _TRAINERS
    if scale is Scale.TINY:
        rate = _TINY_RATE / len(services)
        objective = _TINY_OBJECTIVE_SECONDS
        services = tuple(replace(one, rate=rate, p99_seconds=objective) for one in services)
    return Play(
        scenario=scenario,
        mode=mode,
        seconds=seconds,
        services=() if mode in ("trainer-alone", "trainers-alone") else services,
        trainers=() if mode in ("service-alone", "services-alone") else trainers,
        gpu_mode="parallel" if mode == "parallel" else "turns",
        steered=mode not in FIXED,
        knobs=FIXED.get(mode, {}),
    )


def _burst(seconds: int) -> Burst:
    """Of 120 s from the 60th for 20 s, and in proportion."""
    length = seconds // 6
    if not length:
        raise ConfigError(f"a burst in {seconds} s; allowed: 6 and more")
    return Burst(seconds // 2, seconds // 2 + length, _BURST_FACTOR)


def configuration(
    play: Play,
    ports: Sequence[int],
    out: Path,
    *,
    scale: Scale,
    device: str,
    seed: int,
    cooperative: bool,
    limit_seconds: float,
) -> str:
    """The ``treadle.toml`` of a play.

    Args:
        play: What is played.
        ports: One for each service.
        out: Folder for what the services write.
        scale: Which size of the models.
        device: ``cuda`` or ``cpu``.
        seed: Of the requests; each service has a stream of its own.
        cooperative: Whether services mark their work themselves.
        limit_seconds: How long a service may live.
    """
    lines = ["[[gpu]]", f'mode = "{play.gpu_mode}"']
    for number, (one, port) in enumerate(zip(play.services, ports, strict=True)):
        command = [
            *(sys.executable, "-m", "treadle.bench.mix.server"),
            *("--model", one.model, "--port", str(port), "--objective", str(one.p99_seconds)),
            *("--device", device, "--scale", str(scale), "--rate", str(one.rate)),
            *("--seconds", str(play.seconds), "--seed", str(seed * 100 + number)),
            *("--out", str(out / f"{one.name}.npz"), "--limit-seconds", str(limit_seconds)),
            *(word for burst in one.bursts for word in ("--burst", str(burst))),
            *(["--cooperative"] if cooperative else []),
        ]
        lines += [
            *("", "[[service]]", f'name = "{one.name}"', f"command = {json.dumps(command)}"),
            *(f"port = {port}", 'health = "/health"', 'priority = "critical"'),
            *('restart = "never"', "grace_seconds = 5.0"),
        ]
        if device == "cpu":
            lines += ["gpus = 0"]
        else:
            lines += ["gpus = 1", f'memory = "{one.memory_bytes // _MIB}MiB"']
        if play.steered:
            lines += [
                f"p99_seconds = {one.p99_seconds}",
                f'latency_from = "http://127.0.0.1:{port}/metrics {METRIC}"',
            ]
    return "\n".join([*lines, ""])


def submission_words(trainer: str, out: Path, *, scale: Scale, device: str) -> list[str]:
    """The words after ``treadle submit`` that queue a trainer."""
    memory = _HEADROOM * BACKGROUNDS[trainer].memory_bytes // _MIB
    where = ["--gpus", "1", "--memory", f"{memory}MiB"]
    if device == "cpu":
        where = ["--gpus", "0", "--share", "0.1"]
    command = [sys.executable, "-m", "treadle.bench.mix.trainer", trainer]
    options = ["--device", device, "--scale", str(scale), "--out", str(out / f"{trainer}.npz")]
    return ["--name", trainer, *where, "--json", "--", *command, *options]
