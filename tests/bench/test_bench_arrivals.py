from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.bench.arrivals import (
    Bursty,
    Pattern,
    Schedule,
    changing,
    constant,
    draw_arrivals,
    poisson,
)
from treadle.errors import ConfigError


def times_of(schedule: Schedule, model: str) -> NDArray[np.float64]:
    chosen: NDArray[np.float64] = schedule.times[
        schedule.model_index == schedule.models.index(model)
    ]
    return chosen


def test_a_seed_always_gives_the_same_arrivals() -> None:
    one, same = (draw_arrivals({"a": 50.0, "b": 3.0}, 20.0, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.times, same.times)
    np.testing.assert_array_equal(one.model_index, same.model_index)


def test_another_seed_gives_others() -> None:
    one, other = (draw_arrivals({"a": 50.0}, 20.0, seed=seed) for seed in (7, 8))
    assert one.times[:5].tolist() != other.times[:5].tolist()


def test_a_model_beside_it_does_not_change_a_models_arrivals() -> None:
    alone = draw_arrivals({"b": 30.0}, 20.0, seed=7)
    beside = draw_arrivals({"a": 100.0, "b": 30.0, "c": 5.0}, 20.0, seed=7)
    np.testing.assert_array_equal(times_of(beside, "b"), alone.times)


def test_arrivals_are_in_order_and_within_the_time() -> None:
    schedule = draw_arrivals({"a": 100.0, "b": 30.0}, 20.0, seed=7)
    assert (np.diff(schedule.times) >= 0).all()
    assert schedule.times[0] >= 0
    assert schedule.times[-1] < 20.0


def test_the_rate_is_the_one_asked_for() -> None:
    schedule = draw_arrivals({"a": 200.0, "b": 20.0}, 100.0, seed=7)
    for model, expected in (("a", 20_000), ("b", 2_000)):
        assert abs(len(times_of(schedule, model)) - expected) < 4 * np.sqrt(expected)


def test_gaps_are_exponential() -> None:
    gaps = np.diff(draw_arrivals({"a": 200.0}, 200.0, seed=7).times)
    # Mean and standard deviation of an exponential distribution are the same.
    np.testing.assert_allclose([gaps.mean(), gaps.std()], 1 / 200, rtol=0.03)
    np.testing.assert_allclose((gaps > 2 / 200).mean(), np.exp(-2), rtol=0.05)


def test_a_rate_that_is_too_low_for_the_time_gives_no_arrival() -> None:
    assert len(draw_arrivals({"a": 1e-9}, 1.0, seed=7)) == 0


PATTERNS = [poisson, constant, Bursty(), Bursty(factor=10.0, burst_seconds=1.0)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_keeps_its_mean_its_order_and_its_seed(pattern: Pattern) -> None:
    one, same = (draw_arrivals({"a": 100.0, "b": 20.0}, 100.0, 3, pattern) for _ in range(2))
    np.testing.assert_array_equal(one.times, same.times)
    assert (np.diff(one.times) >= 0).all()
    assert 0 <= one.times[0] <= one.times[-1] < 100.0
    for model, expected in (("a", 10_000), ("b", 2_000)):
        assert abs(len(times_of(one, model)) - expected) < 4 * np.sqrt(expected)


def test_constant_arrivals_have_equal_gaps_and_models_take_turns() -> None:
    schedule = draw_arrivals({"a": 10.0, "b": 10.0}, 5.0, 1, constant)
    np.testing.assert_allclose(np.diff(times_of(schedule, "a")), 0.1)
    assert schedule.model_index.tolist() == [0, 1] * 50


def test_bursts_come_once_in_a_period_at_their_factor() -> None:
    schedule = draw_arrivals({"a": 1000.0}, 50.0, 1, Bursty())
    by_second = np.bincount(schedule.times.astype(int), minlength=50).reshape(5, 10)
    np.testing.assert_allclose(by_second[:, 9], 3000, rtol=0.1)
    np.testing.assert_allclose(by_second[:, :9], 7000 / 9, rtol=0.2)


@pytest.mark.parametrize(
    "text",
    ["", "3", "3:1", "a:1:10", "0:1:10", "3:0:10", "3:10:10", "3:1:inf", "11:1:10", "3:1:nan"],
)
def test_bursts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed: "):
        Bursty.parse(text)


def test_bursts_are_read_and_written() -> None:
    assert Bursty.parse("3:1:10") == Bursty()
    assert str(Bursty()) == "3:1:10"


def test_a_rate_that_changes_is_kept_in_each_part() -> None:
    times = changing([0, 10, 20, 40], [100, 0, 500], np.random.default_rng(1))
    counts = np.histogram(times, [0, 10, 20, 40])[0]
    assert counts == pytest.approx([1000, 0, 10_000], rel=0.1)


def test_the_parts_of_a_schedule_are_all_of_it() -> None:
    whole = draw_arrivals({"a": 50.0, "b": 30.0}, 5.0, 1)
    parts = [whole.part(number, 3) for number in range(3)]
    assert sorted(np.concatenate([part.times for part in parts])) == whole.times.tolist()
    assert [part.models for part in parts] == [whole.models] * 3
