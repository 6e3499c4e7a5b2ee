"""What is played: models, their objectives and loads, and the ways to serve them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from treadle.bench.arrivals import Bursty, Pattern, poisson
from treadle.errors import ConfigError

MODES = ("objective", "fixed", "fifo", "one-by-one")
"""How the node serves: batches sized by what is promised; as large as allowed, without that; the
same, first come, first served over all models; and that without batches."""
RIVAL_MODES = ("litserve", "mlserver")
"""Other servers with the same models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model, and what is asked of it."""

    name: str
    factory: str
    p99_seconds: float | None
    rate: float
    """Requests/s that a search begins with, or that there are."""
    max_batch: int = 64
    priority: str = "normal"
    whole: bool = False
    """Whether all of the objective is to be used."""
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """Models that share a device under one load."""

    name: str
    models: tuple[Served, ...]
    modes: tuple[str, ...]
    search: bool
    """Whether the highest rate is looked for at which every objective holds."""
    pattern: Pattern = poisson
    burst: str = ""
    compared: bool = False
    """Whether other servers play it, too."""

    @property
    def all_modes(self) -> tuple[str, ...]:
        """The modes, and the other servers."""
        return self.modes + (RIVAL_MODES if self.compared else ())


_VISION = Served(name="vision", factory="vision", p99_seconds=0.05, rate=500)
_LANGUAGE = Served(name="language", factory="language", p99_seconds=0.05, rate=60)
_BURST = Bursty(factor=3.0, burst_seconds=1.0, period_seconds=10.0)


def _plays() -> dict[str, Play]:
    every, batched = MODES, ("objective", "fifo")
    found = [
        Play(name="one", models=(_VISION,), modes=every, search=True, compared=True),
        Play(name="one-language", models=(_LANGUAGE,), modes=every, search=True, compared=True),
        Play(name="two", models=(_VISION, _LANGUAGE), modes=every, search=True, compared=True),
        Play(
            name="two-objectives",
            models=(
                Served(name="vision", factory="vision", p99_seconds=0.02, rate=500),
                Served(name="language", factory="language", p99_seconds=0.2, rate=60),
            ),
            modes=every,
            search=True,
        ),
        Play(
            name="two-bursts",
            models=(_VISION, _LANGUAGE),
            modes=batched,
            search=True,
            pattern=_BURST,
            burst=str(_BURST),
            compared=True,
        ),
        Play(
            name="target",
            models=(
                Served(
                    name="vision",
                    factory="vision",
                    p99_seconds=0.12,
                    rate=4000,
                    max_batch=512,
                    whole=True,
                ),
            ),
            modes=("objective",),
            search=False,
        ),
        Play(
            name="ranker",
            models=(
                Served(
                    name="ranker",
                    factory="ranker",
                    p99_seconds=0.2,
                    rate=2000,
                    max_batch=512,
                    priority="critical",
                ),
                Served(
                    name="language",
                    factory="language",
                    p99_seconds=None,
                    rate=400,
                    priority="background",
                ),
            ),
            modes=batched,
            search=False,
        ),
        Play(
            name="classes",
            models=(
                Served(
                    name="vision",
                    factory="vision",
                    p99_seconds=0.05,
                    rate=200,
                    max_batch=8,
                    priority="critical",
                    worker="both",
                ),
                Served(
                    name="language",
                    factory="language",
                    p99_seconds=None,
                    rate=1200,
                    priority="background",
                    worker="both",
                ),
            ),
            modes=batched,
            search=False,
        ),
        Play(
            name="overhead",
            models=(Served(name="echo", factory="echo", p99_seconds=None, rate=100, max_batch=8),),
            modes=("objective",),
            search=False,
        ),
    ]
    return {play.name: play for play in found}


PLAYS: Mapping[str, Play] = MappingProxyType(_plays())


def configuration(play: Play, mode: str, device: str, *, tiny: bool) -> str:
    """The ``treadle.toml`` of a play, served in that way.

    Raises:
        ConfigError: If it is not played so.
    """
    if mode not in play.modes:
        raise ConfigError(f"{play.name} in mode {mode!r}; allowed: {', '.join(play.modes)}")
    policy = "priority" if mode in ("objective", "fixed") else "fifo"
    lines = ["[http]", "port = 0", "[jobs]", "enabled = false"]
    lines += ["[schedule]", f'policy = "{policy}"']
    for model in play.models:
        worker = model.worker if device == "cuda" else ""  # on the CPU a worker has one class
        lines += [
            "[[model]]",
            f'name = "{model.name}"',
            f'factory = "treadle.bench.serving.served:{model.factory}"',
            f'device = "{device}"',
            f'priority = "{model.priority}"',
            f"max_batch = {1 if mode == 'one-by-one' else model.max_batch}",
            "queue_limit = 100000",
            "timeout_seconds = 10",
            f"parameters = {{ tiny = {str(tiny).lower()} }}",
        ]
        if device == "cuda":
            lines += ['dtype = "bfloat16"', "cuda_graph = true", 'graph_memory = "8GiB"']
        if model.p99_seconds is not None and mode == "objective":
            lines += [
                f"p99_seconds = {model.p99_seconds}",
                f"use_whole_objective = {str(model.whole).lower()}",
            ]
        if worker:
            lines.append(f'worker = "{worker}"')
    return "\n".join(lines) + "\n"
