"""Turns the recording of a load into figures and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from treadle.bench.colocation.statistics import Requests
from treadle.bench.colocation.statistics import percentile as percentile_with_interval
from treadle.bench.figures import busy_warnings, percentile, send_lag
from treadle.bench.loadtest.judge import missed_by, misses_allowed
from treadle.bench.loadtest.results import LoadFigures, LoadRun, Second, Verdict
from treadle.bench.openloop import Recording
from treadle.bench.results import CpuUse

REFUSALS = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
_FEWEST_FOR_P99 = 100
_FEWEST_BLOCKS = 8
"""Seconds from which an interval can be drawn."""
_LAG_OF_OBJECTIVE = 0.1
_LEAST_LAG_SECONDS, _USUAL_LAG_SECONDS, _MOST_LAG_SECONDS = 0.002, 0.005, 0.02

Mask = NDArray[np.bool_]


class Reading:
    """A recording, looked at in parts."""

    def __init__(
        self, recording: Recording, objectives: Sequence[float | None], warm_up_seconds: float
    ) -> None:
        """Look at a recording.

        Args:
            recording: What became of each arrival.
            objectives: Seconds, by place of the model in the schedule.
            warm_up_seconds: What was due before this is not counted.
        """
        schedule = recording.schedule
        self.recording = recording
        self.objectives = objectives
        self.warm_up_seconds = warm_up_seconds
        self.end = schedule.seconds if recording.stopped is None else recording.stopped
        self.seconds = max(0.0, self.end - warm_up_seconds)
        self.counted = (schedule.times >= warm_up_seconds) & (schedule.times < self.end)
        self.answered = recording.status == HTTPStatus.OK
        ended = np.inf if recording.stopped is None else recording.stopped
        self.missed = missed_by(recording, objectives, ended) | ~self.answered

    def figures(self, chosen: Mask, objective: float | None, *, interval: bool) -> LoadFigures:
        """Figures of the chosen arrivals; ``objective`` is only told."""
        recording, counted = self.recording, chosen & self.counted
        answered = counted & self.answered
        latencies = recording.latencies[answered]
        offered, good = int(counted.sum()), int((counted & ~self.missed).sum())
        refused, failed = self._reasons(counted)
        low = high = None
        if interval and self.seconds >= _FEWEST_BLOCKS:
            block = (recording.schedule.times[answered] - self.warm_up_seconds).astype(np.intp)
            requests = Requests(block=block, seconds=latencies)
            if estimate := percentile_with_interval(requests, int(self.seconds), 99):
                low, high = estimate.low, estimate.high
        promised = np.array([o is not None for o in self.objectives])
        with_objective = counted & promised[recording.schedule.model_index]
        count = int(with_objective.sum())
        return LoadFigures(
            p99_objective_seconds=objective,
            offered=offered,
            offered_per_second=offered / self.seconds if self.seconds else 0.0,
            answered=int(answered.sum()),
            refused=refused,
            failed=failed,
            p50_seconds=percentile(latencies, 50),
            p90_seconds=percentile(latencies, 90),
            p99_seconds=percentile(latencies, 99),
            p999_seconds=percentile(latencies, 99.9),
            max_seconds=percentile(latencies, 100),
            p99_low_seconds=low,
            p99_high_seconds=high,
            within_fraction=int((with_objective & ~self.missed).sum()) / count if count else None,
            goodput_per_second=good / self.seconds if self.seconds else 0.0,
        )

    def objective_held(self) -> bool | None:
        """Whether every objective did; None without one."""
        index = self.recording.schedule.model_index
        held = [
            int((self.missed & chosen).sum()) <= misses_allowed(int(chosen.sum()))
            for place, objective in enumerate(self.objectives)
            if objective is not None and (chosen := self.counted & (index == place)).any()
        ]
        return all(held) if held else None

    def series(self) -> tuple[Second, ...]:
        """By second and model, the warm-up included."""
        schedule, found = self.recording.schedule, []
        second = schedule.times.astype(np.intp)
        for place, model in enumerate(schedule.models):
            for number in range(int(np.ceil(self.end))):
                chosen = (second == number) & (schedule.model_index == place)
                latencies = self.recording.latencies[chosen & self.answered]
                found.append(
                    Second(
                        second=number,
                        model=model,
                        offered=int(chosen.sum()),
                        answered=len(latencies),
                        missed=int((chosen & self.missed).sum()),
                        p50_seconds=percentile(latencies, 50),
                        p99_seconds=percentile(latencies, 99),
                    )
                )
        return tuple(found)

    def _reasons(self, counted: Mask) -> tuple[dict[str, int], dict[str, int]]:
        """Why requests were refused, and why they failed."""
        refused, failed = Counter[str](), Counter[str]()
        silent = "no answer" if self.recording.stopped is None else "given up"
        for number in np.flatnonzero(counted & ~self.answered).tolist():
            status = int(self.recording.status[number])
            reason = self.recording.reasons.get(number, silent)
            (refused if status in REFUSALS else failed)[reason] += 1
        return dict(refused.most_common()), dict(failed.most_common())


def run_of(
    recording: Recording,
    rate: float,
    objectives: Sequence[float | None],
    warm_up_seconds: float,
    *,
    cpu: CpuUse | None = None,
    whole: bool = True,
) -> LoadRun:
    """Sum up one run.

    Args:
        recording: What became of each arrival.
        rate: Requests per second that were asked for, all models together.
        objectives: Seconds, by place of the model in the schedule.
        warm_up_seconds: What was due before this is not counted.
        cpu: Who used the processor.
        whole: With the intervals and the series, which take time.
    """
    reading, schedule = Reading(recording, objectives, warm_up_seconds), recording.schedule
    models = {
        name: reading.figures(schedule.model_index == place, objectives[place], interval=whole)
        for place, name in enumerate(schedule.models)
    }
    # What has not been sent until the end is at least so late.
    sent = np.where(np.isfinite(recording.sent), recording.sent, reading.end)
    lag = send_lag((sent - schedule.times)[reading.counted])
    run = LoadRun(
        rate=rate,
        seconds=reading.seconds,
        warm_up_seconds=warm_up_seconds,
        verdict=None,
        models=models,
        total=reading.figures(np.ones(len(schedule), np.bool_), None, interval=whole),
        send_lag=lag,
        lag_limit_seconds=lag_limit(objectives),
        stopped_after_seconds=None if recording.stopped is None else reading.seconds,
        cpu=cpu,
        warnings=busy_warnings(cpu) if cpu is not None else (),
        series=reading.series() if whole else (),
    )
    return _judged(run, reading.objective_held())


def lag_limit(objectives: Sequence[float | None]) -> float:
    """P99 of its own lateness up to which a generator's figures are taken for the server's.

    A tenth of the smallest objective, within bounds.
    """
    known = [objective for objective in objectives if objective is not None]
    if not known:
        return _USUAL_LAG_SECONDS
    return min(max(_LAG_OF_OBJECTIVE * min(known), _LEAST_LAG_SECONDS), _MOST_LAG_SECONDS)


def _judged(run: LoadRun, held: bool | None) -> LoadRun:
    """With its verdict, and what makes it doubtful.

    A late generator has not put on the load that it says: nothing is known then, good or bad.
    """
    warnings = list(run.warnings)
    verdict = None if held is None else Verdict.HELD if held else Verdict.MISSED
    if run.send_lag is None:
        verdict = Verdict.INVALID
        warnings.append("no request was due: measure for longer, or at a higher rate")
    elif not run.valid:
        verdict = Verdict.INVALID
        warnings.append(
            f"the generator itself was late: {run.send_lag.p99_seconds * 1000:.1f} ms at its P99, "
            f"allowed are {run.lag_limit_seconds * 1000:.1f} ms; give it cores, or --processes"
        )
    for name, figures in run.models.items():
        if figures.p99_objective_seconds is not None and figures.offered < _FEWEST_FOR_P99:
            warnings.append(
                f"{name}: {figures.offered} requests are few for a P99: --seconds for more"
            )
    return replace(run, verdict=verdict, warnings=tuple(warnings))
