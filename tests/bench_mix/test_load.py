from __future__ import annotations

import numpy as np
import pytest

from treadle.bench.mix.load import Burst, draw, rate_at
from treadle.errors import ConfigError


def test_a_burst_is_read_and_written() -> None:
    burst = Burst.parse("60:80:5")
    assert burst == Burst(60, 80, 5.0)
    assert Burst.parse(str(burst)) == burst


@pytest.mark.parametrize("text", ["", "60:80", "80:60:5", "-1:2:3", "1:2:0", "1:2:inf", "a:b:c"])
def test_what_is_no_burst_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed: BEGIN:END:FACTOR"):
        Burst.parse(text)


def test_a_burst_holds_from_its_first_second_to_before_its_last() -> None:
    bursts = [Burst(2, 4, 5.0)]
    assert [rate_at(second, 10.0, bursts) for second in range(5)] == [10, 10, 50, 50, 10]


def test_requests_are_as_many_as_the_rates_say_and_in_order() -> None:
    due = draw(100.0, [Burst(30, 60, 5.0)], seed=1, seconds=90)
    by_second = np.bincount(due.astype(int), minlength=90)
    assert (np.diff(due) >= 0).all()
    assert by_second[:30].mean() == pytest.approx(100, rel=0.1)
    assert by_second[30:60].mean() == pytest.approx(500, rel=0.1)
    assert by_second[60:].mean() == pytest.approx(100, rel=0.1)


def test_the_same_seed_gives_the_same_requests_whatever_comes_later() -> None:
    short, long = (draw(50.0, [], seed=7, seconds=seconds) for seconds in (3, 9))
    assert np.array_equal(short, long[: len(short)])


def test_no_seconds_give_no_requests() -> None:
    assert len(draw(50.0, [], seed=7, seconds=0)) == 0
