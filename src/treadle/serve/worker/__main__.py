"""The worker program: hosts models, runs one batch at a time, ends when its node does.

It is started by the node with inherited descriptors: a control socket, the place for its progress,
and for each slot the arena that inputs lie in and the arena that outputs go to.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence

import numpy as np

from treadle.child import become_child
from treadle.errors import ModelLoadError
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
from treadle.serve.worker.arena import Arena, Progress, aligned
from treadle.serve.worker.messages import (
    Answers,
    Done,
    Failed,
    Load,
    Loaded,
    LoadFailed,
    PlainSpec,
    Run,
    Signature,
    Slice,
)
from treadle.serve.worker.models import RunnableModel, load_model
from treadle.types import TensorSpec

_TOGETHER_SECONDS = 0.0001
"""Answers are sent together if the first is not kept back for longer than about this."""


class Host:
    """The models of this process and the memory that it shares with the node."""

    def __init__(self, slots: Sequence[tuple[Arena, Arena]]) -> None:
        self._slots = slots
        self._models: dict[str, tuple[RunnableModel, bool]] = {}

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
            except ModelLoadError as error:
                return LoadFailed(setup.name, messages.shorten(str(error)))
            except BaseException as error:  # a factory is foreign code: it may even exit
                traceback.print_exc()  # to the log; callers get the last word
                return LoadFailed(setup.name, messages.shorten(f"{type(error).__name__}: {error}"))
            self._models[setup.name] = (model, setup.max_batch > 1)
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
            results = model(inputs)
            ran = time.perf_counter()
            rows = message.rows if batched else None
            slices = self._write(output_arena, model.outputs, results, rows)
        except Exception as error:
            # What the model printed on the way goes to the log; the caller gets the last word.
            traceback.print_exc()
            return Failed(message.batch, messages.shorten(f"{type(error).__name__}: {error}"))
        written = time.perf_counter()
        return Done(message.batch, slices, read - started, ran - read, written - ran)

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
    ) -> tuple[Slice, ...]:
        tensors = []
        for spec in specs:
            if spec.name not in results:
                raise ValueError(f"the model did not return its output {spec.name!r}")
            array = np.asarray(results[spec.name])
            _check_output(spec, array, rows)
            tensors.append(from_array(spec.name, array))
        slices, end = [], 0
        for tensor in tensors:
            start = aligned(end)
            end = start + len(tensor.data)
            ends = _row_ends(tensor, rows) if tensor.datatype == "BYTES" else ()
            slices.append(
                Slice(tensor.name, tensor.datatype, tensor.shape, start, len(tensor.data), ends)
            )
        view = arena.reserve(end)
        for tensor, place in zip(tensors, slices, strict=True):
            view[place.offset : place.offset + place.nbytes] = tensor.data
        return tuple(slices)


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


def _check_output(spec: TensorSpec, array: Array, rows: int | None) -> None:
    datatype = datatype_of(array.dtype)
    if datatype != spec.datatype:
        raise ValueError(f"output {spec.name!r} is {datatype}, declared as {spec.datatype}")
    fits = len(array.shape) == len(spec.shape) and all(
        want in (-1, got) for want, got in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"output {spec.name!r} has shape {list(array.shape)}, declared as {list(spec.shape)}"
        )
    if rows is not None and array.shape[0] != rows:
        raise ValueError(f"output {spec.name!r} has {array.shape[0]} rows for a batch of {rows}")


def _row_ends(tensor: Tensor, rows: int | None) -> tuple[int, ...]:
    if rows is None:
        return ()
    count = int(np.prod(tensor.shape))
    if count == 0:
        return (0,) * rows
    return tuple(bytes_ends(tensor.data, count)[count // rows - 1 :: count // rows])


def _plain(specs: Sequence[TensorSpec]) -> tuple[PlainSpec, ...]:
    return tuple((s.name, s.datatype, tuple(s.shape)) for s in specs)


def _run_all(
    host: Host, batches: Sequence[Run], progress: Progress, control: socket.socket
) -> None:
    """Run batches one after the other; short ones are answered together."""
    answers = Answers()
    since = time.perf_counter()
    for batch in batches:
        progress.begin(batch.batch)
        answer = messages.encode_answer(host.run(batch))
        if not answers.have_room_for(answer):
            control.send(answers.take())
        answers.add(answer)
        if time.perf_counter() - since > _TOGETHER_SECONDS:
            control.send(answers.take())
            since = time.perf_counter()
    if answers:
        control.send(answers.take())


def main() -> int:
    """Serve the node on the descriptors given as arguments until it hangs up."""
    become_child()
    control_fd, progress_fd, *arena_fds = (int(argument) for argument in sys.argv[1:])
    control = socket.socket(fileno=control_fd)
    progress = Progress(progress_fd)
    arenas = [Arena(fd) for fd in arena_fds]
    host = Host(list(zip(arenas[::2], arenas[1::2], strict=True)))
    while data := control.recv(messages.MAX_MESSAGE_BYTES):
        message = messages.decode_to_worker(data)
        if not isinstance(message, Load):
            _run_all(host, message, progress, control)
            continue
        answer = host.load(message)
        control.send(messages.encode(answer))
        if isinstance(answer, LoadFailed):
            return 1
        gc.collect()
        gc.freeze()  # what loading made stays: later collections need not look at it
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # the node has gone
    sys.stdout.flush()
    os._exit(code)  # threads that a model left behind must not keep the memory
