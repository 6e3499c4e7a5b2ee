from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treadle.bench.arrivals import Schedule, draw_arrivals


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
