"""Tails of the binomial distribution, against direct sums."""

from __future__ import annotations

from math import comb

import pytest

from treadle.schedule.control.chance import at_least, at_most


@pytest.mark.parametrize("trials", [0, 1, 7, 100, 1000])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 30, 100])
def test_tails_are_those_of_the_definition(trials: int, count: int) -> None:
    chance = 0.01
    below = sum(
        comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(min(count, trials + 1))
    )
    assert at_least(count, trials, chance) == pytest.approx(1 - below, abs=1e-9)
    assert at_most(count, trials, chance) >= 1 - at_least(count, trials, chance)


def test_the_quick_way_for_many_agrees_with_the_sum() -> None:
    assert at_least(460, 41_000, 0.01) == pytest.approx(at_least(449, 40_000, 0.01), abs=0.02)


@pytest.mark.parametrize("trials", [10**6, 10**9])
def test_many_requests_do_not_overflow(trials: int) -> None:
    assert at_least(trials // 50, trials, 0.01) == pytest.approx(0.0, abs=1e-9)
    assert at_most(trials // 50, trials, 0.01) == pytest.approx(1.0)
    assert at_least(0, trials, 0.01) == 1.0


def test_none_of_230_is_what_shows_room() -> None:
    assert at_most(0, 229, 0.01) > 0.1 > at_most(0, 230, 0.01)
