"""Services that are not well, on a queue without a node."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from treadle.programs.service import ServiceConfig
from treadle.programs.services import Health, Services
from treadle.types import TaskState

from .queues import Queue
from .supervisor.harness import PATH, until


async def test_a_supervisor_that_has_not_heard_is_told_again(
    queue: Queue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody_answers:
        nobody_answers.bind(("127.0.0.1", 0))
        config = ServiceConfig(
            name="web",
            command=("sleep", "1000"),
            port=nobody_answers.getsockname()[1],
            start_seconds=0.01,
            restart="never",
        )
        told: list[int] = []
        end = queue.jobs.end

        async def deaf_at_first(number: int, reason: str) -> bool:
            told.append(number)
            return len(told) > 1 and await end(number, reason)

        monkeypatch.setattr(queue.jobs, "end", deaf_at_first)
        services = Services([config], queue.jobs, folder, {"PATH": PATH})
        await services.start()
        (service,) = services.services
        await until(lambda: service.health is Health.ENDED, "it is ended")
        await services.close()
    assert len(told) == 2
    state, reason = await queue.outcome(told[0])
    assert state is TaskState.FAILED
    assert reason.startswith("not healthy for 0.01 s")
