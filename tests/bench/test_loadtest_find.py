"""The search, against servers that are simulated: no time passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from treadle.bench.arrivals import draw_arrivals
from treadle.bench.loadtest.find import Bracket, find_highest
from treadle.bench.loadtest.judge import misses_allowed
from treadle.bench.loadtest.results import LimitedBy, Verdict

MOST = 100_000.0
Answer = Callable[[float, bool], Verdict]


class Server:
    """Holds up to a rate, or as a function says; remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[tuple[float, bool]] = []

    async def __call__(self, rate: float, *, confirm: bool) -> Verdict:
        self.asked.append((rate, confirm))
        return self._answer(rate, confirm)


def up_to(capacity: float, beyond: Verdict = Verdict.MISSED) -> Server:
    return Server(lambda rate, _: Verdict.HELD if rate <= capacity else beyond)


async def find(server: Server, start: float = 10.0, most: float = MOST) -> Bracket:
    return await find_highest(server, start=start, precision=0.05, most=most)


@pytest.mark.parametrize("capacity", [0.5, 9.9, 10.0, 437.0, 5000.0])
@pytest.mark.parametrize("start", [10.0, 300.0])
async def test_the_highest_rate_is_found_within_the_precision(
    capacity: float, start: float
) -> None:
    server = up_to(capacity)
    found = await find(server, start)
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= capacity < found.fails <= 1.05 * found.holds
    assert found.limited_by is LimitedBy.OBJECTIVE
    assert server.asked[-1] == (found.holds, True)
    assert len(server.asked) < 25


async def test_a_rate_beyond_the_highest_to_try_is_not_tried() -> None:
    server = up_to(MOST)
    assert await find(server, most=100.0) == Bracket(
        holds=100.0, fails=None, limited_by=LimitedBy.MAX_RATE
    )
    assert [rate for rate, _ in server.asked] == [10, 20, 40, 80, 100, 100]


async def test_nothing_is_found_where_nothing_holds() -> None:
    server = up_to(0.0)
    found = await find(server)
    assert (found.holds, found.limited_by) == (None, LimitedBy.OBJECTIVE)
    assert found.fails == pytest.approx(10.0 / 1024)


async def test_a_generator_that_is_late_limits_the_search_and_is_asked_twice() -> None:
    server = up_to(437.0, beyond=Verdict.INVALID)
    found = await find(server)
    assert found.limited_by is LimitedBy.GENERATOR
    assert [rate for rate, _ in server.asked].count(640) == 2


async def test_one_bad_trial_does_not_decide() -> None:
    bad = iter([True])

    def answer(rate: float, confirm: bool) -> Verdict:
        if rate == 40 and next(bad, False):
            return Verdict.MISSED
        return Verdict.HELD if rate <= 437 else Verdict.MISSED

    found = await find(Server(answer))
    assert found.holds == pytest.approx(437, rel=0.06)


async def test_a_rate_that_does_not_hold_for_longer_goes_down_until_it_does() -> None:
    limit = {False: 500.0, True: 437.0}
    server = Server(lambda rate, long: Verdict.HELD if rate <= limit[long] else Verdict.MISSED)
    found = await find(server)
    assert found.holds is not None
    assert found.fails is not None
    assert found.holds <= 437 < found.fails
    assert found.fails == pytest.approx(1.05 * found.holds)


async def test_a_rate_that_never_holds_for_longer_is_none() -> None:
    server = Server(lambda rate, long: Verdict.MISSED if long or rate > 437 else Verdict.HELD)
    assert (await find(server)).holds is None


@pytest.mark.parametrize("seed", range(20))
async def test_noise_moves_what_is_found_by_little(seed: int) -> None:
    random = np.random.default_rng(seed)

    def answer(rate: float, confirm: bool) -> Verdict:
        spread = 0.02 if confirm else 0.05  # of the capacity, from one trial to the next
        held = rate <= 437 * math.exp(random.normal(0, spread))
        return Verdict.HELD if held else Verdict.MISSED

    found = await find(Server(answer))
    assert found.holds == pytest.approx(437, rel=0.2)


async def test_the_rate_of_a_queue_is_found() -> None:
    """One server, 5 ms each, P99 within 50 ms: requests wait as in Lindley's recursion (1952)."""
    service, objective = 0.005, 0.05

    def answer(rate: float, confirm: bool) -> Verdict:
        times = draw_arrivals({"m": rate}, 90.0 if confirm else 30.0, 1).times
        free, missed = 0.0, 0
        for due in times.tolist():
            free = max(free, due) + service
            missed += free - due > objective
        return Verdict.HELD if missed <= misses_allowed(len(times)) else Verdict.MISSED

    found = await find(Server(answer))
    # Of an M/D/1 queue with 80% load, 1% wait longer than about nine services.
    assert found.holds == pytest.approx(0.8 / service, rel=0.1)
