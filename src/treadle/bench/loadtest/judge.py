"""Whether an objective was met: what is late, refused, failed or wrong is a miss alike."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from treadle.bench.arrivals import Schedule
from treadle.bench.openloop import Recording

WITHIN_FRACTION = 0.99
"""What an objective asks: a P99 within so many seconds."""


class Judge(Struct, frozen=True, kw_only=True):
    """Says while a load runs whether its objectives can still be met."""

    objectives: tuple[float | None, ...]
    """Seconds, by place of the model in the schedule."""
    allowed: tuple[int, ...]
    """How many of each model's requests in the whole window may miss its objective."""
    warm_up_seconds: float

    def __call__(self, recording: Recording, now: float) -> bool:
        """Whether more have missed already than may at all: no luck can make up for that."""
        missed = missed_by(recording, self.objectives, now)
        counted = recording.schedule.times >= self.warm_up_seconds
        places = recording.schedule.model_index[missed & counted]
        count = np.bincount(places, minlength=len(self.allowed))
        return bool((count > np.array(self.allowed)).any())


def judge_of(
    schedule: Schedule, objectives: Sequence[float | None], warm_up_seconds: float
) -> Judge:
    """The judge of a whole schedule."""
    counted = schedule.model_index[schedule.times >= warm_up_seconds]
    offered = np.bincount(counted, minlength=len(schedule.models))
    return Judge(
        objectives=tuple(objectives),
        allowed=tuple(
            int(count) if objective is None else misses_allowed(int(count))
            for count, objective in zip(offered, objectives, strict=True)
        ),
        warm_up_seconds=warm_up_seconds,
    )


def misses_allowed(offered: int) -> int:
    """How many of so many requests may miss a P99."""
    return offered - int(np.ceil(np.nextafter(WITHIN_FRACTION * offered, 0)))


def missed_by(
    recording: Recording, objectives: Sequence[float | None], now: float
) -> NDArray[np.bool_]:
    """Which requests are known at ``now`` to have missed.

    A model without an objective has only what got no right answer.
    """
    seconds = np.array([np.inf if o is None else o for o in objectives], np.float64)
    limit = seconds[recording.schedule.model_index]
    over = np.isfinite(recording.answered)
    right = recording.status == HTTPStatus.OK
    late = np.where(over, recording.latencies, now - recording.schedule.times) > limit
    broken = np.zeros(len(right), np.bool_)
    broken[list(recording.reasons)] = True
    missed: NDArray[np.bool_] = late | (over & ~right) | broken
    return missed
