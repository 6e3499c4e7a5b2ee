from __future__ import annotations

from treadle.bench.timer import KernelTimer


async def test_it_never_returns_early() -> None:
    with KernelTimer() as timer:
        for milliseconds in (1, 2, 3):
            when = timer.now() + milliseconds / 1000
            await timer.until(when)
            assert timer.now() >= when


async def test_a_time_that_is_past_is_no_wait() -> None:
    with KernelTimer() as timer:
        await timer.until(timer.now() - 1.0)
