"""Every mode meets the same requests, in however many slices it is measured."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.bench.colocation.arrivals import blocks_for, count_arrivals, draw_arrivals


def test_the_same_blocks_hold_the_same_arrivals() -> None:
    np.testing.assert_array_equal(draw_arrivals(200, 1, 0, 5), draw_arrivals(200, 1, 0, 5))


def test_slices_join_to_what_one_stretch_would_have_been() -> None:
    whole = draw_arrivals(200, 1, 0, 6)
    parts = [draw_arrivals(200, 1, 0, 2), draw_arrivals(200, 1, 2, 4) + 2.0]
    np.testing.assert_allclose(np.concatenate(parts), whole)


def test_seeds_and_blocks_differ() -> None:
    assert not np.array_equal(draw_arrivals(200, 1, 0, 1), draw_arrivals(200, 2, 0, 1))
    assert not np.array_equal(draw_arrivals(200, 1, 0, 1), draw_arrivals(200, 1, 1, 1))


def test_they_ascend_within_their_blocks() -> None:
    times = draw_arrivals(50, 3, 7, 10)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 10


def test_gaps_are_those_of_a_poisson_process() -> None:
    gaps = np.diff(draw_arrivals(200, 1, 0, 200))
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.02)
    assert gaps.std() == pytest.approx(1 / 200, rel=0.03)


@pytest.mark.parametrize(("requests", "most"), [(1, 10), (500, 10), (1000, 20)])
def test_blocks_are_just_enough(requests: int, most: int) -> None:
    count = blocks_for(requests, 100, 1, 3, most)
    assert count_arrivals(100, 1, 3, count) >= requests
    assert count == 1 or count_arrivals(100, 1, 3, count - 1) < requests


def test_blocks_are_at_most_what_is_allowed() -> None:
    assert blocks_for(10_000, 100, 1, 0, 7) == 7
    assert draw_arrivals(100, 1, 0, 0).shape == (0,)
