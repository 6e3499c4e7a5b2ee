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


def expecting(*runs: tuple[int, float], profile: dict[int, float] | None = None) -> BatchLatency:
    latency = BatchLatency(profile)
    for rows, seconds in runs:
        latency.observe(rows, seconds, 0.0)
    return latency


# rows asked -> expectation, when 2 rows take 0.2 s and 8 rows take 0.5 s
EXPECTED = [(1, 0.2), (2, 0.2), (4, 0.3), (8, 0.5), (16, 1.0)]


@pytest.mark.parametrize(("rows", "seconds"), EXPECTED)
def test_what_is_expected_of_an_unknown_size(rows: int, seconds: float) -> None:
    assert expecting((2, 0.2), (8, 0.5)).expect(rows) == pytest.approx(seconds)
    assert BatchLatency({2: 0.2, 8: 0.5}).expect(rows) == pytest.approx(seconds)


def test_nothing_is_expected_where_nothing_is_known() -> None:
    assert BatchLatency().expect(1) is None
    assert BatchLatency().margin == 1.0


def test_runs_take_the_place_of_the_profile_but_a_profile_refuses_nothing() -> None:
    latency = BatchLatency({4: 1.0})
    assert latency.estimate(4, 0.0) is None
    for _ in range(20):
        latency.observe(4, 0.25, 0.0)
    assert latency.expect(4) == pytest.approx(0.25)


def test_what_makes_one_size_slower_is_expected_of_all() -> None:
    latency = expecting(*[(1, 0.1)] * 20, *[(8, 0.4)] * 20)
    for _ in range(4):
        latency.observe(1, 1.0, 0.0)
    assert latency.expect(8) == pytest.approx(4.0)
    for _ in range(30):
        latency.observe(1, 1.0, 0.0)
        latency.observe(8, 4.0, 0.0)
    assert latency.expect(8) == pytest.approx(4.0)  # it is in the table now, and not counted twice


def test_the_margin_is_what_one_run_in_twenty_exceeds() -> None:
    runs = [(1, 0.1 if number % 10 else 0.13) for number in range(100)]
    assert expecting(*runs).margin == pytest.approx(1.3)
    assert expecting(*[(1, 0.1)] * 50).margin == 1.0
    assert expecting(*[(1, 0.1 if number % 10 else 9.0) for number in range(100)]).margin == 2.0


def test_what_was_measured_before_is_expected_until_runs_tell_otherwise() -> None:
    latency = BatchLatency({1: 0.1, 8: 0.4})
    assert [latency.expect(rows) for rows in (1, 8, 16)] == [0.1, 0.4, 0.8]
    assert latency.estimate(8, 0.0) is None  # nothing is refused because of it
    latency.observe(8, 0.4, 0.0)
    latency.know({1: 0.2, 8: 5.0, 16: 0.6})
    assert [latency.expect(rows) for rows in (1, 8, 16)] == [0.2, 0.4, 0.6]
