from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise, repeat

import pytest

from treadle.bench.closedloop import in_proportion, run_closed


def never() -> bool:
    return False


def after(looks: int) -> Callable[[], bool]:
    """A condition that holds from the given look on."""
    answers: Iterator[bool] = iter([False] * (looks - 1) + [True])
    return lambda: next(answers)


def test_models_take_turns_in_proportion() -> None:
    names = list(islice(in_proportion({"a": 0.7, "b": 0.2, "c": 0.1}, never), 1000))
    assert Counter(names) == {"a": 700, "b": 200, "c": 100}


def test_turns_are_evenly_spread() -> None:
    names = list(islice(in_proportion({"a": 0.5, "b": 0.5}, never), 100))
    assert all(one != next_one for one, next_one in pairwise(names))


def test_a_sequence_ends_after_whole_periods_of_the_rarest() -> None:
    counts = Counter(in_proportion({"a": 0.75, "b": 0.25}, after(looks=4)))
    assert counts["b"] == 4
    assert abs(counts["a"] - 12) <= 1


async def test_no_more_clients_ask_at_once_than_there_are() -> None:
    open_now, most = 0, 0

    async def send(model: str) -> int:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return 200

    run = await run_closed(send, iter(["m"] * 50), clients=8)
    assert (run.completed, most) == (50, 8)


async def test_each_end_of_a_request_is_counted() -> None:
    answers: Iterator[int | OSError] = iter([200, 503, 500, OSError(), 200])

    async def send(model: str) -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    run = await run_closed(send, iter(["m"] * 5), clients=1)
    assert (run.completed, run.refused, run.failed) == (2, 1, 2)


async def test_an_error_of_the_generator_itself_is_not_swallowed() -> None:
    async def send(model: str) -> int:
        raise KeyError(model)

    with pytest.raises(ExceptionGroup):
        await run_closed(send, repeat("m"), clients=2)
