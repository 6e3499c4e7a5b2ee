"""Queues that end with the test, and all their jobs with them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .queues import Queue

MakeQueue = Callable[..., Awaitable[Queue]]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="treadle-") as made:
        yield Path(made)


@pytest.fixture
async def make_queue(folder: Path) -> AsyncIterator[MakeQueue]:
    """Makes queues on one folder, one after another."""
    made: list[Queue] = []

    async def make(**options: Any) -> Queue:
        for earlier in made:
            await earlier.close()
        queue = Queue(folder, **options)
        made.append(queue)
        await queue.jobs.start()
        return queue

    yield make
    for queue in made:
        await queue.clear()


@pytest.fixture
async def queue(make_queue: MakeQueue) -> Queue:
    return await make_queue()
