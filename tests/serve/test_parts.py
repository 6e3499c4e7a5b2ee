"""The parts of an answer between a worker and who takes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle.errors import AbandonedError, ModelError
from treadle.serve.parts import Parts
from treadle.serve.tensors import Tensor

LONG_SECONDS = 3600.0


def part(text: bytes) -> list[Tensor]:
    return [Tensor("y", "UINT8", (len(text),), text)]


class Giving:
    """Parts, and what happened to them."""

    def __init__(self, stall_seconds: float = LONG_SECONDS) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stalled = asyncio.Event()
        self.taken = 0
        self.parts = Parts(self.answer, stall_seconds, self.stalled.set)
        self.parts.on_taken = self._count

    def _count(self) -> None:
        self.taken += 1

    async def take(self) -> bytes | None:
        async with asyncio.timeout(30):
            found = await self.parts.take()
        return None if found is None else bytes(found[0].data)


async def test_parts_are_taken_in_order_and_then_there_are_none() -> None:
    giving = Giving()
    for text in (b"a", b"b"):
        giving.parts.put(part(text))
    giving.answer.set_result(None)
    assert [await giving.take() for _ in range(4)] == [b"a", b"b", None, None]
    assert giving.taken == 2


async def test_who_comes_early_waits() -> None:
    giving = Giving()
    waiting = asyncio.create_task(giving.take())
    await asyncio.sleep(0)
    giving.parts.put(part(b"a"))
    assert await waiting == b"a"
    waiting = asyncio.create_task(giving.take())
    await asyncio.sleep(0)
    giving.answer.set_result(None)
    assert await waiting is None


async def test_an_error_comes_after_the_parts_before_it() -> None:
    giving = Giving()
    giving.parts.put(part(b"a"))
    giving.answer.set_exception(ModelError("it broke"))
    assert await giving.take() == b"a"
    for _ in range(2):
        with pytest.raises(ModelError, match="it broke"):
            await giving.take()


@pytest.mark.parametrize("ended", [False, True])
async def test_parts_that_nobody_takes_are_given_up(ended: bool) -> None:
    giving = Giving(0.01)
    for text in (b"a", b"b"):
        giving.parts.put(part(text))
    if ended:
        giving.answer.set_result(None)
    async with asyncio.timeout(30):
        await giving.stalled.wait()
    with pytest.raises(AbandonedError, match=r"taken for 0\.01 s"):
        await giving.take()
    assert giving.taken == 0


async def test_an_error_that_nobody_waits_for_is_no_trouble() -> None:
    giving = Giving()
    giving.parts.put(part(b"a"))
    giving.answer.set_exception(AbandonedError("gone"))
    giving.parts.drop()
    await asyncio.sleep(0)
