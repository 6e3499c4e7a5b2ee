"""Answers in parts through an engine and a real worker, without a protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.clock import SystemClock
from treadle.devices.cpu import cpu_device
from treadle.errors import AbandonedError, InvalidRequestError, ModelError
from treadle.schedule import POLICIES, Capacity, RequestQueue
from treadle.serve.config import ModelConfig
from treadle.serve.dataplane import DataPlane, ServerInfo
from treadle.serve.engine import Engine
from treadle.serve.engines import Engines
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ServedModel
from treadle.serve.repository import NICE, Repository
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import from_array
from treadle.serve.ticket import Ticket
from treadle.types import Priority

from .worker.hosting import FACTORIES

PATIENCE_SECONDS = 30.0


async def _environment(
    device: str, name: str, priority: Priority, variables: Mapping[str, str]
) -> dict[str, str]:
    return dict(variables)


class Serving:
    """A data plane with one model that yields."""

    def __init__(self, folder: Path, *, rows: int = 1, **changes: Any) -> None:
        self.closed = folder / "closed"
        self._rows = rows
        self.model = ServedModel(
            ModelConfig(
                name="m",
                factory="worker_models:Yields",
                streaming=True,
                parameters={"closed": str(self.closed), "rows": rows},
                **changes,
            )
        )
        models, clock = {"m": self.model}, SystemClock()
        rules = {"m": self.model.batch_rule(by_objective=True)}
        queue = RequestQueue(POLICIES["priority"](), rules)
        metrics = ServeMetrics([queue], clock.now)
        self.engine = Engine(queue, Capacity(urgent_overtakes=True), models, rules, clock, metrics)
        engines = Engines({"m": self.engine})
        self.repository = Repository(
            models, engines, cpu_device(), FACTORIES, nice=NICE, environment=_environment
        )
        self.plane = DataPlane(self.repository, engines, clock, metrics, ServerInfo("test", "0"))

    def ask(self, count: int, then: int = 0, *, parts: bool = True) -> Ticket:
        x = from_array("x", np.array([[count, then]], np.float32))
        model = self.plane.find("m")
        return self.plane.submit(model, InferenceRequest([x]), self.plane.now(), parts=parts)

    async def take(self, ticket: Ticket) -> int:
        """Take an answer to its end; how many parts it had."""
        taken = 0
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(self.plane.parts(ticket)) as parts:
            async for (output, *_), _ in aiter_parts(parts):
                assert output.shape == (taken % 5 * self._rows, 2)
                assert np.all(np.frombuffer(output.data, np.float32) == taken)
                taken += 1
        return taken


async def aiter_parts(parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The parts but for the last, which only says that it is."""
    async for outputs, final in parts:
        assert final == (not outputs)
        if not final:
            yield outputs, final


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Any]:
    made = []

    async def start(**changes: Any) -> Serving:
        serving = Serving(tmp_path, **changes)
        made.append(serving)
        await serving.repository.load_all()
        assert serving.model.ready, serving.model.reason
        return serving

    yield start
    for serving in made:
        await serving.engine.drained()
        serving.repository.kill()
        await serving.repository.close()
        serving.engine.check_integrity()


async def test_requests_are_answered_one_after_the_other(make: Any) -> None:
    serving = await make()
    tickets = [serving.ask(count) for count in (20, 0, 3)]
    assert await asyncio.gather(*map(serving.take, tickets)) == [20, 0, 3]
    assert serving.engine.open_requests == 0
    assert serving.model.statistics.success.count == 3


async def test_large_parts_and_small_ones_keep_their_order(make: Any) -> None:
    serving = await make(rows=300_000)
    assert await serving.take(serving.ask(30)) == 30
    async with aclosing(serving.plane.parts(serving.ask(1_000_000))) as parts:
        async for outputs, _ in parts:
            if outputs[0].shape[0] > 300_000:
                break
    for then, why in ((-1, "cannot go on"), (-4, "SIGKILL")):
        with pytest.raises(ModelError, match=why):
            await serving.take(serving.ask(5, then))
    assert await serving.take(serving.ask(5)) == 5


async def test_what_is_learned_is_the_time_to_the_first_part(make: Any) -> None:
    serving = await make(p99_seconds=10.0)
    assert await serving.take(serving.ask(50)) == 50
    standing = serving.model.standing.as_json(serving.plane.now())
    learned = serving.model.latencies[None].estimate(1, serving.plane.now())
    assert learned is not None
    assert learned <= standing["p99_seconds"] <= serving.model.statistics.success.seconds


async def test_who_leaves_has_the_generator_closed(make: Any) -> None:
    serving = await make()
    async with aclosing(serving.plane.parts(serving.ask(1_000_000))) as parts:
        async for _ in parts:
            break
    assert serving.engine.open_requests == 0
    assert await serving.take(serving.ask(1)) == 1
    assert serving.closed.read_text() == "closed\n"


async def test_who_takes_nothing_does_not_keep_the_others(make: Any) -> None:
    serving = await make(stream_stall_seconds=0.05)
    silent = serving.ask(1_000_000)
    assert await serving.take(serving.ask(1)) == 1
    with pytest.raises(AbandonedError, match="no part of the answer was taken"):
        await serving.take(silent)
    assert serving.closed.read_text() == "closed\n"


@pytest.mark.parametrize(("then", "why"), [(-4, "SIGKILL"), (-5, "exit code 1")])
async def test_a_worker_that_dies_fails_what_had_begun_and_is_replaced(
    make: Any, then: int, why: str
) -> None:
    serving = await make()
    first, second = serving.ask(2, then), serving.ask(2)
    with pytest.raises(ModelError, match=why):
        await serving.take(first)
    assert await serving.take(second) == 2


async def test_a_single_answer_is_refused(make: Any) -> None:
    serving = await make()
    with pytest.raises(InvalidRequestError, match="ModelStreamInfer"):
        serving.ask(1, parts=False)
    assert serving.engine.open_requests == 0
