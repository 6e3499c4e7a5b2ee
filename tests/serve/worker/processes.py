"""Real workers, and what the node does with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from treadle.errors import ModelError
from treadle.serve.worker.messages import Done, Failed, Load, Loaded, ModelSetup, Run
from treadle.serve.worker.process import Slot, WorkerProcess

from .hosting import collect, place

PATIENCE_SECONDS = 20.0
"""How long anything that must happen may take here. Nothing that works comes near it."""

_numbers = count(1)


class EndedError(Exception):
    """A batch whose worker died."""

    def __init__(self, error: ModelError, began: bool) -> None:
        super().__init__(str(error))
        self.began = began


class InFlight:
    """A batch of one row on its way through a worker."""

    def __init__(
        self, worker: WorkerProcess, value: float, model: str = "m", *, flush: bool = True
    ) -> None:
        self._worker = worker
        self._slot: Slot = worker.take_slot()
        self._answer: asyncio.Future[Done | Failed] = asyncio.get_running_loop().create_future()
        inputs = place(self._slot.inputs, {"x": np.array([[value, 0]], np.float32)})
        worker.run(
            Run(next(_numbers), self._slot.number, model, 1, inputs),
            self._answer.set_result,
            lambda error, began: self._answer.set_exception(EndedError(error, began)),
        )
        if flush:
            worker.flush()

    async def answer(self) -> Done | Failed:
        """The answer as it comes; the slot is free again.

        Raises:
            EndedError: If the worker died.
        """
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self._answer
            finally:
                self._worker.free_slot(self._slot)

    async def result(self) -> float:
        """The first element of the output."""
        answer = await self.answer()
        assert isinstance(answer, Done), answer
        return float(collect(self._slot.outputs, answer.outputs)["y"].tolist()[0][0])

    async def text(self) -> str:
        """The only element of a text output."""
        answer = await self.answer()
        assert isinstance(answer, Done), answer
        (element,) = collect(self._slot.outputs, answer.outputs)["y"].tolist()
        return str(element.decode())

    async def death(self) -> EndedError:
        """How the worker died."""
        try:
            answer = await self.answer()
        except EndedError as ended:
            return ended
        raise AssertionError(f"answered: {answer}")


async def load(worker: WorkerProcess, *setups: ModelSetup) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await worker.load(Load(setups, nice=0))
    assert isinstance(answer, Loaded), answer


async def end_of(worker: WorkerProcess) -> str:
    """Why a worker ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return str(await worker.exited)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], object]) -> None:
    """Wait for what cannot be awaited."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


def open_descriptors() -> set[str]:
    """What this process has open."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
