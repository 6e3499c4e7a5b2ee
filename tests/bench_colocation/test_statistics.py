"""Percentiles over native, their intervals, and training by the second."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.bench.colocation.codec import pack, unpack
from treadle.bench.colocation.statistics import (
    Requests,
    WeightedPercentile,
    geometric_mean,
    percentile,
    percentile_ratio,
    rate_ratio,
    steps_by_block,
)

BLOCKS = 50


def requests(scale: float = 1.0, seed: int = 1) -> Requests:
    random = np.random.default_rng(seed)
    block = np.sort(random.integers(0, BLOCKS, 10_000))
    return Requests(block=block, seconds=scale * random.lognormal(-7, 0.5, len(block)))


def test_packed_times_keep_a_microsecond() -> None:
    times = np.random.default_rng(0).exponential(0.002, 10_000)
    text = pack(times)
    np.testing.assert_allclose(unpack(text), times, atol=0.6e-6)
    assert len(text) < 3 * len(times)
    assert unpack(pack([-1.5, 0.0])).tolist() == [-1.5, 0.0]


def test_a_broken_packing_is_refused() -> None:
    with pytest.raises(ValueError, match="not packed"):
        unpack("AAAA")


def test_equal_weights_give_the_plain_percentile() -> None:
    of = requests()
    plain = np.percentile(of.seconds, 99, method="inverted_cdf")
    assert WeightedPercentile(of, 99)(np.ones(BLOCKS, np.int64)) == plain


def test_a_block_of_no_weight_does_not_count() -> None:
    of = Requests(block=np.array([0, 0, 1]), seconds=np.array([1.0, 2.0, 9.0]))
    assert WeightedPercentile(of, 100)(np.array([1, 0])) == 2.0
    assert np.isnan(WeightedPercentile(of, 50)(np.array([0, 0])))


def test_the_same_requests_scaled_have_exactly_that_ratio() -> None:
    ratio = percentile_ratio(requests(1.25), requests(), BLOCKS, 99)
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.25, 1.25, 1.25))


def test_the_interval_covers_the_truth_and_is_the_same_each_time() -> None:
    first = percentile_ratio(requests(1.25, seed=2), requests(), BLOCKS, 99, seed=5)
    again = percentile_ratio(requests(1.25, seed=2), requests(), BLOCKS, 99, seed=5)
    other = percentile_ratio(requests(1.25, seed=2), requests(), BLOCKS, 99, seed=6)
    assert first is not None
    assert first == again != other
    assert first.low < 1.25 < first.high
    assert first.high - first.low < 0.3


def test_only_common_blocks_are_compared() -> None:
    native = requests()
    longer = Requests(
        block=np.append(native.block, BLOCKS), seconds=np.append(native.seconds, 1000.0)
    )
    ratio = percentile_ratio(longer, native, BLOCKS, 100)
    assert ratio is not None
    assert ratio.value == 1.0
    assert percentile_ratio(longer, native, 0, 99) is None
    assert percentile(native, 0, 99) is None


def test_steps_are_counted_by_parts() -> None:
    finished = np.linspace(-1.9, 23.7, 65)
    np.testing.assert_allclose(steps_by_block(finished, 4, 1.0), 2.5)
    assert steps_by_block(np.empty(0), 3, 1.0).tolist() == [0, 0, 0]


def test_training_kept() -> None:
    kept = rate_ratio(np.full(30, 6.0), np.full(20, 8.0), 1 / 0.8)
    assert kept is not None
    assert (kept.value, kept.low, kept.high) == pytest.approx((0.9375, 0.9375, 0.9375))
    assert rate_ratio(np.empty(0), np.full(3, 1.0), 1.0) is None
    assert rate_ratio(np.full(3, 1.0), np.zeros(3), 1.0) is None


def test_geometric_mean() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None
