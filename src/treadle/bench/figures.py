"""Turns a recording into figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from treadle.bench.openloop import Recording
from treadle.bench.results import Comparison, CpuUse, Figures, Run, SendLag
from treadle.bench.traffic import ModelTraffic

LATE_SECONDS = 0.005
"""A generator that is later than this at its P99 blurs what it measures."""
OTHERS_CORES = 0.15
"""Other programs that use more than this take it from what is measured."""


def percentile(values: NDArray[np.float64], percent: float) -> float | None:
    """Nearest rank: the smallest value that ``percent`` of 100 do not exceed; None of nothing."""
    if not len(values):
        return None
    return float(np.percentile(values, percent, method="inverted_cdf"))


def run_of(
    policy: str,
    recording: Recording,
    models: Mapping[str, ModelTraffic],
    cpu: CpuUse,
) -> Run:
    """Sum up one policy's recording."""
    schedule = recording.schedule
    objectives = [models[name].p99_seconds for name in schedule.models]
    # No latency is within NaN seconds.
    objective = np.array([np.nan if o is None else o for o in objectives], np.float64)
    promised = objective[schedule.model_index]
    rows = {}
    for index, name in enumerate(schedule.models):
        figures = _figures(recording, schedule.model_index == index, promised)
        rows[name] = _with_promise(figures, models[name])
    lag = send_lag(recording.send_lags)
    return Run(
        policy=policy,
        models=dict(sorted(rows.items(), key=lambda item: list(models).index(item[0]))),
        total=_figures(recording, np.ones(len(schedule), np.bool_), promised),
        send_lag=lag,
        cpu=cpu,
        warnings=(*_lag_warnings(lag), *busy_warnings(cpu)),
    )


def compare(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """Hold the first run against each later one."""
    return tuple(
        Comparison(
            first=runs[0].policy,
            second=other.policy,
            p99_ratio={
                name: _ratio(runs[0].models[name].p99_seconds, other.models[name].p99_seconds)
                for name in runs[0].models
            },
            throughput_ratio=_ratio(
                other.total.completed_per_second, runs[0].total.completed_per_second
            ),
        )
        for other in runs[1:]
    )


def _figures(
    recording: Recording, chosen: NDArray[np.bool_], promised: NDArray[np.float64]
) -> Figures:
    """Figures of the chosen arrivals.

    Args:
        recording: What became of all arrivals.
        chosen: Which of them to look at; shape ``[arrivals]``.
        promised: Seconds within which each should have been answered, NaN without an
            objective; shape ``[arrivals]``.
    """
    seconds = recording.schedule.seconds
    status, promised = recording.status[chosen], promised[chosen]
    latencies, answered = recording.latencies[chosen], recording.answered[chosen]
    ok = status == HTTPStatus.OK
    rejected = int((status == HTTPStatus.SERVICE_UNAVAILABLE).sum())
    with_objective = int((~np.isnan(promised)).sum())
    met = int((ok & (latencies <= promised)).sum())
    return Figures(
        offered=len(status),
        offered_per_second=len(status) / seconds,
        completed=int(ok.sum()),
        completed_per_second=int((ok & (answered <= seconds)).sum()) / seconds,
        p50_seconds=percentile(latencies[ok], 50),
        p95_seconds=percentile(latencies[ok], 95),
        p99_seconds=percentile(latencies[ok], 99),
        objective_met_fraction=met / with_objective if with_objective else None,
        rejected=rejected,
        failed=len(status) - int(ok.sum()) - rejected,
    )


def _with_promise(figures: Figures, model: ModelTraffic) -> Figures:
    return replace(figures, priority=model.priority, p99_objective_seconds=model.p99_seconds)


def send_lag(lags: NDArray[np.float64]) -> SendLag | None:
    """Sum up how late a generator was, in seconds; None if it sent nothing."""
    p50, p99 = percentile(lags, 50), percentile(lags, 99)
    if p50 is None or p99 is None:
        return None
    return SendLag(p50_seconds=p50, p99_seconds=p99, max_seconds=float(lags.max()))


def busy_warnings(cpu: CpuUse) -> tuple[str, ...]:
    """What to think of figures that were taken beside other programs."""
    if cpu.other_cores <= OTHERS_CORES:
        return ()
    return (
        f"other programs used {cpu.other_cores:.1f} cores meanwhile: measure again when the "
        "machine is quiet",
    )


def _lag_warnings(lag: SendLag | None) -> tuple[str, ...]:
    if lag is None:
        return ("no request arrived: measure for longer, or at a higher rate",)
    if lag.p99_seconds <= LATE_SECONDS:
        return ()
    return (
        f"the generator itself was late: {lag.p99_seconds * 1000:.1f} ms at its P99, which the "
        "latencies include",
    )


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
