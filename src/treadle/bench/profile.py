"""Measures a model by batch size and share of SMs, in workers such as a node's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from treadle.errors import ModelError, ModelLoadError, TreadleError
from treadle.predict.profile import Point
from treadle.serve.config import ModelConfig, why_no_sm_share
from treadle.serve.sample import sample_inputs
from treadle.serve.worker.arena import aligned
from treadle.serve.worker.messages import (
    Done,
    Failed,
    Load,
    LoadFailed,
    ModelSetup,
    Run,
    Signature,
    Slice,
)
from treadle.serve.worker.process import Slot, WorkerProcess
from treadle.types import TensorSpec

LEAST_RUNS = 20
_MOST_RUNS = 10_000
_RUNS_BEFORE = 3
"""Of each size, that are not counted: memory is taken, kernels are chosen."""
_SHARES = (1.0, 0.5, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be measured."""

    rows: tuple[int, ...]
    shares: tuple[float, ...]
    """Of a GPU's SMs, the largest first."""
    seconds: float
    """How long each size is run at least, and ``LEAST_RUNS`` times."""
    left_out: tuple[str, ...] = ()
    """Why something that was asked for is not among it."""


@dataclass(slots=True)
class Figures:
    """What was measured, so far."""

    points: list[Point] = field(default_factory=list)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The shapes of one row."""
    free: list[str] = field(default_factory=list)
    """Inputs whose dimensions could be of any size, besides the batch."""
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a model is measured: what its worker is started with."""

    setup: ModelSetup
    environment: Mapping[str, str]
    nice: int


def choose(
    config: ModelConfig,
    rows: Sequence[int] | None,
    shares: Sequence[float] | None,
    seconds: float,
) -> Wanted:
    """What is measured of a model: what was asked for, or else what is usual.

    Raises:
        TreadleError: If a batch cannot be so large, or a share is none.
    """
    if rows is None:
        sizes = {1 << power for power in range(config.max_batch.bit_length())}
        rows = [*sizes, config.max_batch]
    if not rows or not all(1 <= size <= config.max_batch for size in rows):
        asked = ",".join(str(size) for size in rows)
        raise TreadleError(f"--rows {asked}; allowed: 1 to max_batch, which is {config.max_batch}")
    if shares is not None and not (shares and all(0 < share <= 1 for share in shares)):
        asked = ",".join(f"{share:g}" for share in shares)
        raise TreadleError(f"--sm-share {asked}; allowed: above 0, to 1")
    why = why_no_sm_share(config)
    if why:
        others = [share for share in shares or () if share < 1]
        left_out = tuple(f"sm_share {share:g}: {why}" for share in others)
        chosen: set[float] = {1.0}
    else:
        left_out = ()
        chosen = set(shares) if shares is not None else {*_SHARES, config.sm_share}
    return Wanted(
        rows=tuple(sorted(set(rows))),
        shares=tuple(sorted(chosen, reverse=True)),
        seconds=seconds,
        left_out=left_out,
    )


async def measure(
    config: ModelConfig, wanted: Wanted, place: Place, on_step: Callable[[str, int], None]
) -> Figures:
    """Measure a model, one worker for each share.

    Args:
        config: Of the model.
        wanted: What to measure.
        place: Where.
        on_step: Told what is done next, and how many sizes are done.

    Raises:
        ModelLoadError: If the model cannot be loaded.
        ModelError: If not one batch could be measured.
    """
    figures = Figures(left_out=list(wanted.left_out))
    for number, share in enumerate(wanted.shares):
        done = number * len(wanted.rows)
        on_step("loading" if share == 1 else f"loading, {share:g} of the SMs", done)
        here = Place(
            setup=replace(place.setup, sm_share=share, timed=True),
            environment=place.environment,
            nice=place.nice,
        )
        try:
            async with _worker(config, here) as (worker, signature):
                runner = _Runner(worker, config, signature, figures)
                await _all_sizes(runner, wanted, share, done, on_step)
        except ModelLoadError as error:
            if share == 1:
                raise
            figures.left_out.append(f"sm_share {share:g}: {error}")
    if not figures.points:
        raise ModelError(f"nothing of {config.name!r} could be measured: {figures.left_out[-1]}")
    return figures


async def _all_sizes(
    runner: _Runner, wanted: Wanted, share: float, done: int, on_step: Callable[[str, int], None]
) -> None:
    for number, rows in enumerate(wanted.rows):
        on_step(f"{rows} rows" + (f", {share:g} of the SMs" if share < 1 else ""), done + number)
        try:
            runner.figures.points.append(await runner.point(rows, share, wanted.seconds))
        except ModelError as error:
            more = " and more" if rows != wanted.rows[-1] else ""
            where = f", sm_share {share:g}" if share < 1 else ""
            runner.figures.left_out.append(f"{rows} rows{more}{where}: {error}")
            return


@contextlib.asynccontextmanager
async def _worker(
    config: ModelConfig, place: Place
) -> AsyncIterator[tuple[WorkerProcess, Signature]]:
    """A worker that has loaded the model; it ends with the block."""
    try:
        worker = await WorkerProcess.start(config.worker_name, place.environment)
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"its worker cannot be started: {error}") from None
    try:
        try:
            load = worker.load(Load((place.setup,), place.nice))
            answer = await asyncio.wait_for(load, config.load_limit_seconds)
        except TimeoutError:
            limit = config.load_limit_seconds
            raise ModelLoadError(f"it took longer than {limit:g} s to load") from None
        except (ModelError, ValueError) as error:
            raise ModelLoadError(str(error)) from None
        if isinstance(answer, LoadFailed):
            raise ModelLoadError(answer.reason)
        yield worker, answer.signatures[config.name]
        worker.hang_up()
    finally:
        if worker.usable:
            worker.kill("was ended: it is not needed")
        await worker.exited


class _Runner:
    """Runs batches of made-up inputs, one after the other, as the node would."""

    def __init__(
        self, worker: WorkerProcess, config: ModelConfig, signature: Signature, figures: Figures
    ) -> None:
        self.figures = figures
        self._worker, self._config = worker, config
        self._batched = config.max_batch > 1
        self._specs = [TensorSpec(*spec) for spec in signature[0]]
        self._numbers = count(1)
        figures.inputs = {t.name: t.shape for t in sample_inputs(self._specs, 1)}
        figures.free = [s.name for s in self._specs if -1 in s.shape[1 if self._batched else 0 :]]

    async def point(self, rows: int, share: float, seconds: float) -> Point:
        """Run batches of one size, and sum them up.

        Raises:
            ModelError: If one of them fails.
        """
        slot = self._worker.take_slot()
        try:
            slices = self._place(slot, rows)
            for _ in range(_RUNS_BEFORE):
                await self._run(slot, rows, slices)
            runs: list[Done] = []
            end = time.monotonic() + seconds
            while len(runs) < LEAST_RUNS or time.monotonic() < end:
                runs.append(await self._run(slot, rows, slices))
                if len(runs) == _MOST_RUNS:
                    break
        finally:
            self._worker.free_slot(slot)
        if all(run.device_seconds for run in runs):
            return Point.of_runs(rows, share, [run.device_seconds for run in runs], "device")
        wall = [run.input_seconds + run.run_seconds + run.output_seconds for run in runs]
        return Point.of_runs(rows, share, wall, "wall")

    def _place(self, slot: Slot, rows: int) -> tuple[Slice, ...]:
        """Write the inputs of a batch into its slot."""
        slices, end = [], 0
        tensors = sample_inputs(self._specs, rows if self._batched else 1)
        for tensor in tensors:
            start, nbytes = aligned(end), len(tensor.data)
            end = start + nbytes
            slices.append(Slice(tensor.name, tensor.datatype, tensor.shape, start, nbytes))
        view = slot.inputs.reserve(end)
        for tensor, piece in zip(tensors, slices, strict=True):
            view[piece.offset : piece.offset + piece.nbytes] = tensor.data
        return tuple(slices)

    async def _run(self, slot: Slot, rows: int, slices: tuple[Slice, ...]) -> Done:
        """Run one batch and wait for it.

        Raises:
            ModelError: If it fails, takes too long, or does not fit into the device's memory.
        """
        ended: asyncio.Future[Done | Failed | ModelError] = (
            asyncio.get_running_loop().create_future()
        )

        def end(answer: Done | Failed | ModelError) -> None:
            if not ended.done():
                ended.set_result(answer)

        run = Run(next(self._numbers), slot.number, self._config.name, rows, slices)
        self._worker.run(run, end, lambda error, began: end(error))
        self._worker.flush()
        limit = self._config.run_limit_seconds
        try:
            answer = await asyncio.wait_for(ended, limit)
        except TimeoutError:
            self._worker.kill(f"was ended: a batch ran longer than {limit:g} s")
            raise ModelError(f"a batch ran longer than {limit:g} s") from None
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Failed):
            raise ModelError(answer.reason)
        if answer.fitted_rows:
            raise ModelError(f"only {answer.fitted_rows} rows fit into the device's memory")
        return answer
