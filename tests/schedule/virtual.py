"""A device that serves in virtual time: what a queue and its rules make of a load."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from treadle.predict import BatchLatency
from treadle.schedule import (
    BatchRule,
    Entry,
    FixedBatch,
    HighestPriorityFirst,
    ObjectiveBatch,
    Patience,
    QueuePolicy,
    RequestQueue,
)
from treadle.types import Priority

_NOISE = 0.03


@dataclass(frozen=True, kw_only=True)
class Load:
    """A model, what a batch of it takes, and who asks."""

    rate: float
    """Requests/s, Poisson."""
    first_seconds: float
    row_seconds: float
    objective_seconds: float
    max_rows: int = 64
    priority: Priority = Priority.NORMAL
    burst: bool = False
    """Three times the mean for one second in ten."""
    slower_from: float = math.inf
    """From then on a batch takes ten times as long."""


@dataclass
class Served:
    """What became of a model's requests."""

    latencies: list[tuple[float, float]] = field(default_factory=list)
    """When each began to wait, and for how long, seconds."""
    rows: list[int] = field(default_factory=list)

    def late(self, objective_seconds: float, after: float = 0.0) -> float:
        """The part that took longer."""
        chosen = [seconds for arrived, seconds in self.latencies if arrived >= after]
        return sum(seconds > objective_seconds for seconds in chosen) / len(chosen)

    def p99(self, after: float = 0.0) -> float:
        chosen = sorted(seconds for arrived, seconds in self.latencies if arrived >= after)
        return chosen[int(0.99 * (len(chosen) - 1))]


def fixed(load: Load) -> tuple[BatchRule, Callable[[int, float, float], None], None]:
    return FixedBatch(load.max_rows), lambda rows, seconds, now: None, None


def by_objective(
    load: Load, *, whole: bool = False
) -> tuple[BatchRule, Callable[[int, float, float], None], Patience | None]:
    latency = BatchLatency()
    patience = Patience(load.objective_seconds) if whole else None
    rule = ObjectiveBatch(
        load.objective_seconds,
        lambda: load.max_rows,
        latency.expect,
        lambda: latency.margin,
        patience=(lambda: patience.seconds) if patience else None,
    )
    return rule, latency.observe, patience


Make = Callable[[Load], tuple[BatchRule, Callable[[int, float, float], None], Patience | None]]


def serve(
    loads: Mapping[str, Load],
    make: Make,
    *,
    seconds: float,
    policy: QueuePolicy | None = None,
    seed: int = 1,
) -> dict[str, Served]:
    """Play the loads for so long, one batch at a time on the device, until all is answered."""
    rng = random.Random(seed)
    arrivals = sorted(
        (when, model) for model, load in loads.items() for when in _arrivals(load, seconds, rng)
    )
    made = {model: make(load) for model, load in loads.items()}
    rules = {model: rule for model, (rule, _, _) in made.items()}
    queue = RequestQueue(policy or HighestPriorityFirst(), rules)
    served = {model: Served() for model in loads}
    now = free = 0.0
    number = 0
    while number < len(arrivals) or any(queue.waiting(model) for model in loads):
        batch = queue.take(now, ready=lambda _: True, fits=lambda _: True) if now >= free else None
        if batch is not None:
            load, (_, observe, patience) = loads[batch.model], made[batch.model]
            rows = len(batch.entries)
            takes = (load.first_seconds + load.row_seconds * rows) * rng.lognormvariate(0, _NOISE)
            free = now + takes * (10 if now >= load.slower_from else 1)
            observe(rows, free - now, free)
            served[batch.model].rows.append(rows)
            for entry in batch.entries:
                served[batch.model].latencies.append((entry.arrived, free - entry.arrived))
                if patience is not None:
                    patience.observe(free - entry.arrived)
            continue
        events = [arrivals[number][0]] if number < len(arrivals) else []
        events.append(free if now < free else queue.next_event(now))
        now = min(events)
        while number < len(arrivals) and arrivals[number][0] <= now:
            when, model = arrivals[number]
            number += 1
            entry = Entry(
                model=model,
                batch_key=None,
                priority=loads[model].priority,
                arrived=when,
                due=when + loads[model].objective_seconds,
            )
            rules[model].arrived(entry)
            queue.push(entry)
    return served


def _arrivals(load: Load, seconds: float, rng: random.Random) -> list[float]:
    when, found = 0.0, list[float]()
    while True:
        factor = (3.0 if when % 10 < 1 else 7 / 9) if load.burst else 1.0
        when += rng.expovariate(load.rate * factor)
        if when >= seconds:
            return found
        found.append(when)
