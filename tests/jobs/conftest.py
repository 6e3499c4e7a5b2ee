"""Queues and nodes that end with the test, and all their jobs with them; disks of any size."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.conftest import (
    make_home,
    pool,
    start_node,
    start_shared_node,
)

from .queues import Queue

__all__ = ["make_home", "pool", "start_node", "start_shared_node"]

MakeDisk = Callable[[str], Path]
MakeQueue = Callable[..., Awaitable[Queue]]


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folders: a path to a Unix socket may have 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="treadle-") as made:
        yield Path(made)


@pytest.fixture
def make_disk() -> Iterator[MakeDisk]:
    """Makes small disks, where the system lets us."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        made: list[Path] = []

        def make(options: str) -> Path:
            disk = Path(folder) / str(len(made))
            disk.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
            may = os.geteuid() == 0
            if not may or subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("needs the right to mount")
            made.append(disk)
            return disk

        yield make
        for disk in made:
            subprocess.run(["umount", "-l", str(disk)], check=True)


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
