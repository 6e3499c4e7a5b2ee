"""Run time by batch size, learned from runs."""

from __future__ import annotations

import pytest

from treadle.predict import BatchLatency


def learned(*runs: tuple[int, float, float]) -> BatchLatency:
    """From (rows, seconds, when it ended)."""
    latency = BatchLatency(believed_seconds=5.0)
    for rows, seconds, ended in runs:
        latency.observe(rows, seconds, ended)
    return latency


def test_nothing_is_known_at_first() -> None:
    assert BatchLatency().estimate(1, 0.0) is None
    assert BatchLatency().estimate(1, 1e9) is None


def test_one_run_is_believed() -> None:
    assert learned((4, 0.25, 10.0)).estimate(4, 10.0) == 0.25


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("outlier", [100.0, 0.0])
def test_one_outlier_changes_nothing_wherever_it_comes(position: int, outlier: float) -> None:
    seconds = [0.2, 0.2, 0.2, 0.2]
    seconds.insert(position, outlier)
    runs = [(1, s, float(when)) for when, s in enumerate(seconds)]
    assert learned(*runs).estimate(1, 5.0) == 0.2


def test_the_estimate_is_the_median() -> None:
    latency = learned(*((1, s, 0.0) for s in (5.0, 1.0, 4.0, 2.0, 3.0)))
    assert latency.estimate(1, 0.0) == 3.0


def test_old_runs_are_forgotten_once_there_are_new_ones() -> None:
    latency = learned(*((1, 9.0, 0.0) for _ in range(100)))
    for _ in range(100):
        latency.observe(1, 0.1, 0.0)
    assert latency.estimate(1, 0.0) == 0.1


def test_each_size_is_judged_by_its_own_runs() -> None:
    latency = learned((1, 0.1, 0.0), (8, 0.5, 0.0))
    assert (latency.estimate(1, 0.0), latency.estimate(8, 0.0)) == (0.1, 0.5)


# rows asked -> estimate, when 2 rows take 0.2 s and 8 rows take 0.5 s
UNKNOWN_SIZES = [(1, None), (2, 0.2), (3, 0.2), (7, 0.2), (8, 0.5), (9, 0.5), (4096, 0.5)]


@pytest.mark.parametrize(("rows", "seconds"), UNKNOWN_SIZES)
def test_an_unknown_size_is_judged_by_the_nearest_smaller_one(
    rows: int, seconds: float | None
) -> None:
    assert learned((2, 0.2, 0.0), (8, 0.5, 0.0)).estimate(rows, 0.0) == seconds


def test_a_belief_that_no_run_confirms_lapses() -> None:
    latency = learned((1, 9.0, 100.0))
    assert latency.estimate(1, 105.0) == 9.0
    assert latency.estimate(1, 105.1) is None


def test_a_run_after_a_lapse_is_believed_again() -> None:
    latency = learned((1, 0.3, 100.0), (1, 0.3, 200.0))
    assert latency.estimate(1, 200.0) == 0.3


def test_runs_of_another_size_do_not_confirm_a_belief() -> None:
    """Else a size that was slow once is refused for as long as any other is busy."""
    latency = learned((1, 9.0, 0.0), *((8, 0.1, float(when)) for when in range(100)))
    assert latency.estimate(1, 99.0) is None
    assert latency.estimate(8, 99.0) == 0.1
