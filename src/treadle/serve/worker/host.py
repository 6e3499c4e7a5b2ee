"""The models of a worker, and the memory that it shares with the node."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from types import GeneratorType, MappingProxyType
from typing import Any

import numpy as np

from treadle.errors import ModelLoadError
from treadle.serve.padding import Bucket
from treadle.serve.tensors import (
    DTYPES,
    Array,
    Tensor,
    bytes_ends,
    datatype_of,
    from_array,
    to_array,
)
from treadle.serve.worker import messages
from treadle.serve.worker.arena import Arena, aligned
from treadle.serve.worker.memory import (
    has_spoilt_the_device,
    is_out_of_memory,
    run_in_memory,
)
from treadle.serve.worker.messages import (
    Done,
    Failed,
    Load,
    Loaded,
    LoadFailed,
    ModelSetup,
    Part,
    PlainSpec,
    Run,
    Signature,
    Slice,
)
from treadle.serve.worker.models import (
    RunnableModel,
    StagedBatch,
    StagedModel,
    load_model,
)
from treadle.serve.worker.pinning import Pinning
from treadle.serve.worker.streams import Stream
from treadle.types import TensorSpec

_log = logging.getLogger("treadle.worker")

_END: Any = object()
"""What a model that has yielded all is taken to yield."""

Finish = Callable[[float], Done | Failed]
"""Waits until a batch has ended; is told when the one before it had."""


class Host:
    """The models of this process and the memory that it shares with the node."""

    def __init__(
        self,
        slots: Sequence[tuple[Arena, Arena]],
        models: Mapping[str, tuple[RunnableModel, bool]] = MappingProxyType({}),
    ) -> None:
        """Begin.

        Args:
            slots: The arenas of inputs and outputs.
            models: Those that live already, and whether they take batches.
        """
        self._slots = slots
        self._pinning: Pinning | None = None
        self._models = dict(models)
        self._streaming: set[str] = set()

    def load(self, message: Load) -> Loaded | LoadFailed:
        """Load every model, or say which one failed and why."""
        os.nice(message.nice)
        signatures: dict[str, Signature] = {}
        for setup in message.models:
            try:
                model = load_model(setup)
                if not model.inputs:
                    raise ModelLoadError("it takes no input, so nothing could be asked of it")
                _check_specs(setup.name, [*model.inputs, *model.outputs], setup.max_batch)
                _check_padding(setup, model)
            except ModelLoadError as error:
                return LoadFailed(setup.name, messages.shorten(str(error)))
            except BaseException as error:  # a factory is foreign code: it may even exit
                traceback.print_exc()  # to the log; callers get the last word
                return LoadFailed(setup.name, messages.shorten(f"{type(error).__name__}: {error}"))
            if isinstance(model, StagedModel) and setup.on_gpu and self._pinning is None:
                self._pinning = Pinning(arena for slot in self._slots for arena in slot)
            self._models[setup.name] = (model, setup.max_batch > 1)
            if setup.streaming:
                self._streaming.add(setup.name)
            _warm_up(model, setup)
            signatures[setup.name] = (_plain(model.inputs), _plain(model.outputs))
        return Loaded(signatures)

    def run(self, message: Run) -> Done | Failed:
        """Run one batch. Whatever the model raises becomes the batch's failure."""
        model, batched = self._models[message.model]
        started = time.perf_counter()
        try:
            input_arena, output_arena = self._slots[message.slot]
            inputs = self._read(input_arena, message.inputs)
            read = time.perf_counter()
            rows = message.rows if batched else None
            results, fitted = run_in_memory(model, inputs, rows)
            if isinstance(results, GeneratorType):
                raise TypeError("it yields: its configuration must say streaming = true")
            ran = time.perf_counter()
            slices = self._write(output_arena, model.outputs, results, rows)
        except Exception as error:
            return self._failed(message, error)
        written = time.perf_counter()
        return Done(message.batch, slices, read - started, ran - read, written - ran, fitted)

    def answers_in_parts(self, model: str) -> bool:
        return model in self._streaming

    def run_in_parts(
        self, message: Run, stream: Stream, send: Callable[[Part], None]
    ) -> Done | Failed:
        """Run a request of a model that yields: each part is sent as soon as it is there.

        The time that the node takes to take parts does not count as the model's.
        """
        model, _ = self._models[message.model]
        started = time.perf_counter()
        input_arena, output_arena = self._slots[message.slot]
        waited, first = 0.0, None
        try:
            inputs = self._read(input_arena, message.inputs)
            read = time.perf_counter()
            with closing(_parts(model, inputs)) as parts:
                while True:
                    held = time.perf_counter()
                    wanted = stream.wait()
                    waited += time.perf_counter() - held
                    outputs = next(parts, _END) if wanted else _END
                    if outputs is _END:
                        break
                    slices = self._write(output_arena, model.outputs, outputs, None, stream.place)
                    if first is None:
                        first = time.perf_counter() - started - waited
                    send(Part(message.batch, slices))
        except Exception as error:
            return self._failed(message, error)
        seconds = time.perf_counter() - read - waited
        return Done(message.batch, (), read - started, seconds, 0.0, first_part_seconds=first)

    def begin(self, message: Run) -> Finish:
        """Have a batch run that goes on by itself, if its model can; call what is returned to end.

        One that cannot has run when this returns.
        """
        model, batched = self._models[message.model]
        if not isinstance(model, StagedModel):
            answer = self.run(message)
            return lambda after: answer
        started = time.perf_counter()
        try:
            input_arena, output_arena = self._slots[message.slot]
            batch: StagedBatch | None = model.begin(self._read(input_arena, message.inputs))
        except Exception as error:
            if not is_out_of_memory(error):
                failed = self._failed(message, error)
                return lambda after: failed
            batch = None
        if batch is None:  # slowly, then; by now the error holds nothing of the attempt any more
            answer = self.run(message)
            return lambda after: answer
        try:
            rows = message.rows if batched else None
            slices = self._place(output_arena, model.outputs, batch, rows)
        except Exception as error:
            batch.close()
            failed = self._failed(message, error)
            return lambda after: failed

        def finish(after: float) -> Done | Failed:
            try:
                batch.wait()
            except Exception as error:
                return self._failed(message, error)
            seconds = time.perf_counter() - max(started, after)
            return Done(
                message.batch, slices, 0.0, seconds, 0.0, device_seconds=batch.device_seconds
            )

        return finish

    def _place(
        self, arena: Arena, specs: Sequence[TensorSpec], batch: StagedBatch, rows: int | None
    ) -> tuple[Slice, ...]:
        """Have a batch's outputs copied to where the node reads them."""
        slices, end, shapes = [], 0, batch.shapes
        for spec in specs:
            if spec.name not in shapes:
                raise ValueError(f"the model did not return its output {spec.name!r}")
            shape, dtype = shapes[spec.name]
            _check_output(spec, shape, dtype, rows)
            start, nbytes = aligned(end), math.prod(shape) * dtype.itemsize
            end = start + nbytes
            slices.append(Slice(spec.name, spec.datatype, shape, start, nbytes))
        view = arena.reserve(end)
        batch.copy_to(
            {
                s.name: np.frombuffer(
                    view[s.offset : s.offset + s.nbytes], shapes[s.name][1]
                ).reshape(s.shape)
                for s in slices
            }
        )
        return tuple(slices)

    def _failed(self, message: Run, error: Exception) -> Failed:
        # What the model printed on the way goes to the log; the caller gets the last word.
        traceback.print_exception(error)
        return Failed(
            message.batch,
            messages.shorten(f"{type(error).__name__}: {error}"),
            spoilt=has_spoilt_the_device(error),
        )

    def _read(self, arena: Arena, slices: tuple[Slice, ...]) -> dict[str, Array]:
        view = arena.follow(slices[-1].offset + slices[-1].nbytes)
        return {
            s.name: to_array(
                Tensor(s.name, s.datatype, s.shape, view[s.offset : s.offset + s.nbytes])
            )
            for s in slices
        }

    def _write(
        self,
        arena: Arena,
        specs: Sequence[TensorSpec],
        results: Mapping[str, Array],
        rows: int | None,
        place: Callable[[int], int] | None = None,
    ) -> tuple[Slice, ...]:
        """Copy outputs to where the node reads them.

        Args:
            arena: What it reads.
            specs: What is to be there.
            results: What the model returned.
            rows: How many it must have; None if that is the model's own affair.
            place: Says where so many bytes may go; at the start of the arena if it is not given.
        """
        tensors = []
        for spec in specs:
            if spec.name not in results:
                raise ValueError(f"the model did not return its output {spec.name!r}")
            array = np.asarray(results[spec.name])
            _check_output(spec, array.shape, array.dtype, rows)
            tensors.append(from_array(spec.name, array))
        slices, end = [], 0
        if place is not None:
            end = place(sum(aligned(len(tensor.data)) for tensor in tensors))
        for tensor in tensors:
            start = aligned(end)
            end = start + len(tensor.data)
            ends = _row_ends(tensor, rows) if tensor.datatype == "BYTES" else ()
            slices.append(
                Slice(tensor.name, tensor.datatype, tensor.shape, start, len(tensor.data), ends)
            )
        view = arena.reserve(end)
        for tensor, s in zip(tensors, slices, strict=True):
            view[s.offset : s.offset + s.nbytes] = tensor.data
        return tuple(slices)


def _parts(model: RunnableModel, inputs: dict[str, Array]) -> Generator[Mapping[str, Array]]:
    """What a model yields; if it returns a whole answer instead, that is the only part."""
    returned = model(inputs)
    if isinstance(returned, Mapping):
        yield returned
    else:
        yield from returned


def _warm_up(model: RunnableModel, setup: ModelSetup) -> None:
    """Run what is to be run before requests come. What fails then is only said: zeros are odd."""
    padding = setup.padding
    buckets = [None] if padding is None else [Bucket(padding, n) for n in padding.lengths]
    for count, bucket in itertools.product(setup.warm_up, buckets):
        inputs = {s.name: _zeros(s, count, bucket, setup) for s in model.inputs}
        try:
            if setup.streaming:
                with closing(_parts(model, inputs)) as parts:
                    next(parts, None)
            else:
                model(inputs)
        except Exception as error:
            if has_spoilt_the_device(error):
                raise
            size = f"{count} rows" + (f" of length {bucket.length}" if bucket else "")
            _log.warning("%s: no warm-up with %s: %s", setup.name, size, error)


def _zeros(spec: TensorSpec, rows: int, bucket: Bucket | None, setup: ModelSetup) -> Array:
    """An input to warm up with."""
    shape = tuple(max(1, n) for n in spec.shape)
    if setup.max_batch > 1:
        shape = (rows, *shape[1:])
    if bucket is not None:
        if spec.name == bucket.config.length_input:
            return np.full(shape, bucket.length, DTYPES[spec.datatype])
        shape = bucket.shape(spec.name, shape)
    return np.zeros(shape, DTYPES[spec.datatype])


def _check_specs(model: str, specs: list[TensorSpec], max_batch: int) -> None:
    for spec in specs:
        if spec.datatype not in DTYPES:
            raise ModelLoadError(
                f"{spec.name!r} is declared as {spec.datatype!r}; allowed: {', '.join(DTYPES)}"
            )
        if max_batch > 1 and (not spec.shape or spec.shape[0] != -1):
            raise ModelLoadError(
                f"{spec.name!r} of model {model!r} has shape {list(spec.shape)}: with max_batch "
                f"above 1 the first dimension is the batch and must be -1"
            )


def _check_padding(setup: ModelSetup, model: RunnableModel) -> None:
    if setup.padding is None:
        return
    try:
        setup.padding.check(model.inputs, model.outputs)
    except ValueError as error:
        raise ModelLoadError(f"padding.{error}") from None


def _check_output(
    spec: TensorSpec, shape: tuple[int, ...], dtype: np.dtype[Any], rows: int | None
) -> None:
    datatype = datatype_of(dtype)
    if datatype != spec.datatype:
        raise ValueError(f"output {spec.name!r} is {datatype}, declared as {spec.datatype}")
    fits = len(shape) == len(spec.shape) and all(
        want in (-1, got) for want, got in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"output {spec.name!r} has shape {list(shape)}, declared as {list(spec.shape)}"
        )
    if rows is not None and shape[0] != rows:
        raise ValueError(f"output {spec.name!r} has {shape[0]} rows for a batch of {rows}")


def _row_ends(tensor: Tensor, rows: int | None) -> tuple[int, ...]:
    if rows is None:
        return ()
    count = int(np.prod(tensor.shape))
    if count == 0:
        return (0,) * rows
    return tuple(bytes_ends(tensor.data, count)[count // rows - 1 :: count // rows])


def _plain(specs: Sequence[TensorSpec]) -> tuple[PlainSpec, ...]:
    return tuple((s.name, s.datatype, tuple(s.shape)) for s in specs)
