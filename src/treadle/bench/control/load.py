"""The situations that are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from treadle.bench.control.model import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A critical server with Poisson arrivals beside a training that never pauses."""

    help: str
    load: float
    """Part of the GPU's time that the requests take."""
    objective_seconds: float
    seconds: float = 120.0
    service: Service = field(default_factory=lambda: Service(part_seconds=1e-3))
    burst: tuple[float, float] | None = None
    """From, to, in seconds."""
    burst_factor: float = 5.0

    def arrivals(self, seed: int) -> NDArray[np.float64]:
        """When requests come, in seconds."""
        random = np.random.default_rng(seed)
        rate = self.load / (2 * self.service.part_seconds)
        edges = [(0.0, self.seconds, rate)]
        if self.burst is not None:
            start, end = self.burst
            edges = [
                (0.0, start, rate),
                (start, end, rate * self.burst_factor),
                (end, self.seconds, rate),
            ]
        parts = [
            low + np.sort(random.random(random.poisson((high - low) * often)) * (high - low))
            for low, high, often in edges
        ]
        return np.concatenate(parts)


SITUATIONS: Mapping[str, Situation] = MappingProxyType(
    {
        "steady": Situation(
            help="30% load, 10 ms promised",
            load=0.3,
            objective_seconds=10e-3,
        ),
        "burst": Situation(
            help="12% load and five times that from 40 to 60 s, 25 ms promised",
            load=0.12,
            objective_seconds=25e-3,
            burst=(40.0, 60.0),
        ),
        "flood": Situation(
            help="15% load and five times that from 40 to 50 s, 10 ms promised: not even alone",
            load=0.15,
            objective_seconds=10e-3,
            burst=(40.0, 50.0),
        ),
        "easy": Situation(
            help="15% load, 50 ms promised",
            load=0.15,
            objective_seconds=50e-3,
        ),
        "busy": Situation(
            help="60% load, 25 ms promised",
            load=0.6,
            objective_seconds=25e-3,
        ),
        "impossible": Situation(
            help="30% load, 4 ms promised: not even alone",
            load=0.3,
            objective_seconds=4e-3,
        ),
    }
)
