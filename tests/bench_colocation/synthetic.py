"""Results with known answers, as if they had been measured."""

from __future__ import annotations

import numpy as np

from treadle.bench.colocation.arrivals import draw_arrivals
from treadle.bench.colocation.cells import parse_cell
from treadle.bench.colocation.codec import pack
from treadle.bench.colocation.store import Calibration, Slice, Store
from treadle.bench.colocation.workloads import CRITICALS, NONE

SERVICE_SECONDS = 0.001
SEED = 1


def rate_of(critical: str) -> float:
    return CRITICALS[critical].load / SERVICE_SECONDS


def calibrate(store: Store, critical: str) -> None:
    store.append(
        Calibration(
            critical=critical,
            service_seconds=SERVICE_SECONDS,
            device_seconds=SERVICE_SECONDS,
            rate=rate_of(critical),
            device="made up",
        )
    )


def measure(
    store: Store,
    name: str,
    *,
    slower: float = 1.0,
    steps_per_second: float = 8.0,
    blocks: int = 20,
    unanswered: int = 0,
) -> None:
    """Append a slice in which each request takes ``slower`` times what it takes alone."""
    cell = parse_cell(name)
    first = store.blocks(cell)
    rate, arrived, latencies, steps = None, 0, None, None
    if cell.critical != NONE:
        rate = rate_of(cell.critical)
        arrivals = draw_arrivals(rate, SEED, first, blocks)
        arrived = len(arrivals)
        random = np.random.default_rng([SEED, first])
        alone = SERVICE_SECONDS * random.lognormal(0, 0.4, arrived)
        latencies = pack(slower * alone[: arrived - unanswered])
    if cell.background != NONE:
        steps = pack(np.arange(-3, steps_per_second * blocks + 3) / steps_per_second)
    store.append(
        Slice(
            cell=name,
            first=first,
            blocks=blocks,
            seed=SEED,
            rate=rate,
            arrived=arrived,
            latencies=latencies,
            waited=blocks + 10.0,
            steps=steps,
            facts={"critical resnet": {"device": "made up"}},
        )
    )
