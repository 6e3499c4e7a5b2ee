"""Time that moves only when told to, and time that moves by itself."""

from __future__ import annotations

import pytest

from treadle.clock import Clock, ManualClock, SystemClock


def test_a_manual_clock_stands_still() -> None:
    clock = ManualClock(5.0)
    assert [clock.now() for _ in range(3)] == [5.0] * 3


def test_a_manual_clock_starts_at_zero_and_adds_up_what_it_is_advanced() -> None:
    clock = ManualClock()
    assert clock.now() == 0.0
    assert clock.advance(1.5) == 1.5
    assert clock.advance(0.0) == 1.5
    assert clock.advance(2.0) == 3.5
    assert clock.now() == 3.5


def test_a_manual_clock_never_goes_back() -> None:
    clock = ManualClock(5.0)
    with pytest.raises(ValueError, match=r"cannot go back by 0\.5 s"):
        clock.advance(-0.5)
    assert clock.now() == 5.0


def test_the_system_clock_never_goes_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.now() for _ in range(1000)]
    assert readings == sorted(readings)
