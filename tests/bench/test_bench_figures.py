from __future__ import annotations

import numpy as np
import pytest

from treadle.bench.arrivals import Schedule
from treadle.bench.figures import compare, percentile, run_of
from treadle.bench.openloop import NO_ANSWER, Recording
from treadle.bench.results import CpuUse, Run
from treadle.bench.traffic import ModelTraffic

NAN = float("nan")


def model(name: str, p99_seconds: float | None) -> ModelTraffic:
    return ModelTraffic(
        name=name, priority="normal", p99_seconds=p99_seconds, max_batch=1, requests=()
    )


def run(
    *rows: tuple[int, float, float, int],
    objectives: tuple[float | None, float | None] = (None, None),
    lag: float = 0.0,
    policy: str = "fifo",
    others: float = 0.0,
) -> Run:
    """Of rows (model 0 or 1, due, latency, status), over 10 seconds."""
    index, due, latency, status = zip(*rows, strict=True) if rows else ((), (), (), ())
    times = np.array(due, np.float64)
    schedule = Schedule(
        models=("a", "b"), seconds=10.0, times=times, model_index=np.array(index, np.intp)
    )
    recording = Recording(
        schedule, times + lag, times + np.array(latency), np.array(status, np.int64)
    )
    models = {name: model(name, o) for name, o in zip("ab", objectives, strict=True)}
    cpu = CpuUse(generator_cores=0.1, node_cores=1.0, other_cores=others)
    return run_of(policy, recording, models, cpu)


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50.0), (95, 95.0), (99, 99.0), (100, 100.0), (0.5, 1.0)]
)
def test_percentiles_are_nearest_ranks(percent: float, expected: float) -> None:
    values = np.random.default_rng(1).permutation(np.arange(1.0, 101.0))
    assert percentile(values, percent) == expected


def test_the_p99_of_few_values_is_the_largest() -> None:
    assert percentile(np.array([3.0, 1.0, 2.0]), 99) == 3.0


def test_nothing_has_no_percentile() -> None:
    assert percentile(np.array([]), 99) is None


def test_models_are_summed_up_one_by_one_and_together() -> None:
    result = run((0, 1.0, 0.1, 200), (1, 2.0, 0.5, 200), (0, 3.0, 0.2, 200))
    assert [result.models[name].offered for name in "ab"] == [2, 1]
    assert [result.models[name].p99_seconds for name in "ab"] == pytest.approx([0.2, 0.5])
    assert (result.total.offered, result.total.completed) == (3, 3)
    assert result.total.offered_per_second == pytest.approx(0.3)
    assert result.total.p99_seconds == pytest.approx(0.5)


def test_what_is_answered_after_the_last_arrival_is_completed_but_no_throughput() -> None:
    figures = run((0, 1.0, 0.1, 200), (0, 9.0, 4.0, 200)).models["a"]
    assert figures.completed == 2
    assert figures.completed_per_second == pytest.approx(0.1)
    assert figures.p99_seconds == pytest.approx(4.0)


def test_refusals_and_failures_have_no_latency() -> None:
    figures = run(
        (0, 1.0, 0.1, 200), (0, 2.0, 0.001, 503), (0, 3.0, 7.0, 500), (0, 4.0, NAN, NO_ANSWER)
    ).models["a"]
    assert (figures.completed, figures.rejected, figures.failed) == (1, 1, 2)
    assert figures.p50_seconds == figures.p99_seconds == pytest.approx(0.1)


def test_an_objective_is_missed_by_late_refused_and_failed_requests() -> None:
    figures = run(
        (0, 1.0, 0.1, 200),
        (0, 1.5, 0.3, 200),
        (0, 2.0, 0.001, 503),
        (0, 3.0, 0.001, 500),
        (0, 4.0, NAN, NO_ANSWER),
        objectives=(0.2, None),
    ).models["a"]
    assert figures.objective_met_fraction == pytest.approx(1 / 5)


def test_a_model_without_an_objective_has_none_met() -> None:
    result = run((0, 1.0, 0.1, 200), (1, 1.0, 0.1, 200), objectives=(0.2, None))
    assert result.models["b"].objective_met_fraction is None
    assert result.models["b"].p99_objective_seconds is None
    assert result.total.objective_met_fraction == 1.0


def test_a_late_generator_is_warned_of() -> None:
    assert run((0, 1.0, 0.1, 200), lag=0.001).warnings == ()
    (warning,) = run((0, 1.0, 0.1, 200), lag=0.02).warnings
    assert "20.0 ms" in warning


def test_a_busy_machine_is_warned_of() -> None:
    (warning,) = run((0, 1.0, 0.1, 200), others=1.24).warnings
    assert "other programs used 1.2 cores" in warning


def test_a_run_without_arrivals_says_so() -> None:
    result = run()
    assert result.total.offered == 0
    assert result.total.p99_seconds is None
    assert result.send_lag is None
    assert "no request arrived" in result.warnings[0]


def test_runs_are_compared_by_p99_and_throughput() -> None:
    first = run((0, 1.0, 0.6, 200), (1, 2.0, 0.5, 200))
    second = run((0, 1.0, 0.2, 200), (1, 9.9, 0.5, 200), policy="priority")
    (comparison,) = compare([first, second])
    assert (comparison.first, comparison.second) == ("fifo", "priority")
    assert comparison.p99_ratio == pytest.approx({"a": 3.0, "b": 1.0})
    assert comparison.throughput_ratio == pytest.approx(0.5)


def test_what_is_not_known_cannot_be_compared() -> None:
    first = run((0, 1.0, 0.6, 503))
    (comparison,) = compare([first, first])
    assert comparison.p99_ratio == {"a": None, "b": None}
    assert comparison.throughput_ratio is None
    assert compare([first]) == ()
