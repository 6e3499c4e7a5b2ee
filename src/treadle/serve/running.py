"""One batch on its way through a worker: inputs in, answer out, each caller its own rows.

A request whose answer comes in parts is a batch by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from treadle.errors import ModelError
from treadle.schedule import Batch
from treadle.serve.model import ServedModel
from treadle.serve.padding import Bucket, PaddedTensor, cut
from treadle.serve.parts import Parts
from treadle.serve.tensors import Buffer, Tensor
from treadle.serve.ticket import Ticket
from treadle.serve.worker.arena import aligned
from treadle.serve.worker.messages import (
    MOST_UNTAKEN,
    Done,
    Failed,
    Part,
    Run,
    Slice,
    Stop,
    Taken,
)
from treadle.serve.worker.process import WorkerLane

_LONG_COPY_BYTES = 4 << 20
"""Copies above this size would hold up the event loop for about a millisecond."""
_COMPANY_BYTES = 16 << 10
"""A batch above this size is sent at once: the worker can begin while the next one is copied."""

Outputs = list[list[Tensor]]
Piece = tuple[int, Buffer | PaddedTensor]
"""What one caller brings to an input, and where it goes."""
OnEnd = Callable[["RunningBatch", Done | Failed | ModelError | None, Outputs], None]
"""Called with the answer, or with None if the worker died before it began with the batch."""


class RunningBatch:
    """Tickets that run together on one worker."""

    def __init__(
        self,
        model: ServedModel,
        batch: Batch,
        tickets: tuple[Ticket, ...],
        lane: WorkerLane,
        started: float,
        loop: asyncio.AbstractEventLoop,
        on_end: OnEnd,
    ) -> None:
        self.model = model
        self.batch = batch
        self.tickets = tickets
        assert model.group is not None
        self.group = model.group  # the model may be given another one meanwhile
        self.lane = lane
        self.worker = lane.worker
        self._slot = self.worker.take_slot()
        lane.in_flight += 1
        self.started = started
        self.signature = (model.inputs, model.outputs)
        """Of the model as it was when the batch started."""
        self.rows = sum(ticket.rows for ticket in tickets)
        self.bucket = tickets[0].bucket
        padding = model.config.padding
        self._bucket = Bucket(padding, self.bucket) if padding and self.bucket else None
        self._on_end = on_end
        self._loop = loop
        self._limit: asyncio.TimerHandle | None = None
        self._copying: asyncio.Task[None] | None = None

    def start(self, number: int) -> None:
        """Put the inputs where the worker reads them; it runs once its worker is flushed."""
        slices, pieces, nbytes = self._place_inputs()
        run = Run(number, self._slot.number, self.model.name, self.rows, tuple(slices))
        view = self._slot.inputs.reserve(nbytes)
        if nbytes > _LONG_COPY_BYTES:
            self._copying = asyncio.create_task(self._start_long(run, pieces, view))
            return
        _copy_in(view, pieces)
        self._run(run)
        if nbytes > _COMPANY_BYTES:
            self.worker.flush()

    async def _start_long(self, run: Run, pieces: list[Piece], view: memoryview) -> None:
        await asyncio.to_thread(_copy_in, view, pieces)
        self._run(run)
        self.worker.flush()

    def _run(self, run: Run) -> None:
        self._start_limit()
        self.worker.run(run, self._answered, self._died)

    def _start_limit(self) -> None:
        limit = self.model.config.run_limit_seconds
        self._limit = self._loop.call_later(
            limit,
            self.worker.kill,
            f"was ended: a batch of model '{self.model.name}' ran longer than {limit:g} s",
        )

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _place_inputs(self) -> tuple[list[Slice], list[Piece], int]:
        """Decide where each caller's rows go, so that callers lie one behind the other."""
        bucket = self._bucket
        slices: list[Slice] = []
        pieces: list[Piece] = []
        end = 0
        for index, spec in enumerate(self.model.inputs):
            start = end = aligned(end)
            for ticket in self.tickets:
                tensor = ticket.inputs[index]
                data = tensor.data if bucket is None else bucket.pad(tensor)
                pieces.append((end, data))
                end += len(data)
            shape = self.tickets[0].inputs[index].shape
            if self.model.batched:
                shape = (self.rows, *shape[1:])
            if bucket is not None:
                shape = bucket.shape(spec.name, shape)
            slices.append(Slice(spec.name, spec.datatype, shape, start, end - start))
        if bucket is not None and (name := bucket.config.length_input) is not None:
            lengths = np.array([ticket.length for ticket in self.tickets], np.int64)
            data = np.repeat(lengths, [ticket.rows for ticket in self.tickets]).tobytes()
            start = aligned(end)
            end = start + len(data)
            pieces.append((start, data))
            slices.append(Slice(name, "INT64", (self.rows,), start, len(data)))
        return slices, pieces, end

    def _answered(self, answer: Done | Failed) -> None:
        self._stop_limit()  # it has run; copying its answer is not its doing
        if isinstance(answer, Failed):
            self._end(answer, [])
        elif self._bucket is not None and (wrong := _wrong_length(self._bucket, answer.outputs)):
            self._end(Failed(answer.batch, wrong), [])
        elif sum(s.nbytes for s in answer.outputs) > _LONG_COPY_BYTES:
            self._copying = asyncio.create_task(self._finish_long(answer))
        else:
            self._end(answer, self._split(answer))

    async def _finish_long(self, answer: Done) -> None:
        self._end(answer, await asyncio.to_thread(self._split, answer))

    def _died(self, error: ModelError, began: bool) -> None:
        self._end(error if began else None, [])

    def _end(self, answer: Done | Failed | ModelError | None, outputs: Outputs) -> None:
        self._stop_limit()
        self.worker.free_slot(self._slot)
        self.lane.in_flight -= 1
        self._on_end(self, answer, outputs)

    def _split(self, answer: Done) -> Outputs:
        """Copy each caller's rows out of the arena, which the next batch will overwrite."""
        view = self._slot.outputs.follow(_end_of(answer.outputs))
        outputs: Outputs = []
        first = 0
        for ticket in self.tickets:
            last = first + ticket.rows
            if ticket.answer.done():  # its caller has gone
                outputs.append([])
            elif self._bucket is not None:
                axes, length = self._bucket.config.outputs, ticket.length
                outputs.append(
                    [
                        _cut_rows(view, s, first, last, axes.get(s.name), length)
                        for s in answer.outputs
                    ]
                )
            elif self.model.batched:
                outputs.append([_rows(view, s, first, last) for s in answer.outputs])
            else:
                outputs.append([_whole(view, s) for s in answer.outputs])
            first = last
        return outputs


class RunningStream(RunningBatch):
    """A request whose answer comes in parts.

    Its model may take ``run_limit_seconds`` from one part to the next, but for the time in which
    it waits until some are taken. If nobody wants the rest, its generator is closed.
    """

    _parts: Parts
    _number = 0
    _untaken = 0
    _has_begun = False

    def _run(self, run: Run) -> None:
        (ticket,) = self.tickets
        assert ticket.parts is not None, "it was accepted as one whose answer comes in parts"
        self._number, self._parts = run.batch, ticket.parts
        self._parts.on_taken = self._taken
        self.lane.streaming = True
        self._start_limit()
        self.worker.run(run, self._answered, self._died, self._part)
        ticket.answer.add_done_callback(self._stop)

    def _part(self, part: Part) -> None:
        self._stop_limit()
        self._has_begun = True
        self._untaken += 1
        if self._untaken < MOST_UNTAKEN or self.tickets[0].answer.done():
            self._start_limit()
        end = _end_of(part.outputs)
        view = self._slot.outputs.follow(end)
        if self._copying is not None and self._copying.done():
            self._copying = None
        long = end - part.outputs[0].offset > _LONG_COPY_BYTES
        if long or self._copying is not None:
            self._copying = asyncio.create_task(self._give_long(view, part, self._copying))
        else:
            self._give([_whole(view, s) for s in part.outputs])

    async def _give_long(
        self, view: memoryview, part: Part, before: asyncio.Task[None] | None
    ) -> None:
        """Copy a part elsewhere; parts and the end must not overtake each other."""
        if before is not None:
            await before
        self._give(await asyncio.to_thread(lambda: [_whole(view, s) for s in part.outputs]))

    def _give(self, part: list[Tensor]) -> None:
        if not self.tickets[0].answer.done():  # else its caller has gone
            self._parts.put(part)

    def _answered(self, answer: Done | Failed) -> None:
        self._stop_limit()
        end = super()._answered
        if self._copying is None:
            end(answer)
        else:
            self._copying.add_done_callback(lambda _: end(answer))

    def _taken(self) -> None:
        self._untaken -= 1
        self.worker.tell(Taken(self._number))
        if self._limit is None:
            self._start_limit()

    def _stop(self, _: object) -> None:
        """Its caller has gone: who still runs is answered already."""
        self.worker.tell(Stop(self._number))
        if self._limit is None:
            self._start_limit()

    def _died(self, error: ModelError, began: bool) -> None:
        self._stop_limit()
        # What has given a part is not run again, whatever its worker began since.
        end, began = super()._died, began or self._has_begun
        if self._copying is None:
            end(error, began)
        else:
            self._copying.add_done_callback(lambda _: end(error, began))

    def _end(self, answer: Done | Failed | ModelError | None, outputs: Outputs) -> None:
        (ticket,) = self.tickets
        ticket.answer.remove_done_callback(self._stop)
        self._parts.on_taken = None
        self.lane.streaming = False
        super()._end(answer, outputs)


def _end_of(slices: Sequence[Slice]) -> int:
    return slices[-1].offset + slices[-1].nbytes if slices else 0


def _copy_in(view: memoryview, pieces: Sequence[Piece]) -> None:
    for offset, data in pieces:
        if isinstance(data, PaddedTensor):
            data.copy_to(view[offset : offset + len(data)])
        else:
            view[offset : offset + len(data)] = data


def _wrong_length(bucket: Bucket, outputs: Sequence[Slice]) -> str:
    """Which output cannot be cut back; empty if all can."""
    for s in outputs:
        axis = bucket.config.outputs.get(s.name)
        if axis is not None and s.shape[axis] != bucket.length:
            return (
                f"output {s.name!r} has shape {list(s.shape)}: axis {axis} must be as long as "
                f"its inputs, which are padded to {bucket.length}"
            )
    return ""


def _whole(view: memoryview, s: Slice) -> Tensor:
    return Tensor(s.name, s.datatype, s.shape, bytes(view[s.offset : s.offset + s.nbytes]))


def _rows(view: memoryview, s: Slice, first: int, last: int) -> Tensor:
    """Rows ``first`` up to ``last`` of a batched output."""
    if s.datatype == "BYTES":
        start = s.row_ends[first - 1] if first else 0
        end = s.row_ends[last - 1]
    else:
        row_nbytes = s.nbytes // s.shape[0]
        start, end = first * row_nbytes, last * row_nbytes
    data = bytes(view[s.offset + start : s.offset + end])
    return Tensor(s.name, s.datatype, (last - first, *s.shape[1:]), data)


def _cut_rows(
    view: memoryview, s: Slice, first: int, last: int, axis: int | None, length: int | None
) -> Tensor:
    """Rows of an output, along an axis, if there is one to cut, as long as their caller asked."""
    if axis is None:
        return _rows(view, s, first, last)
    row_nbytes = s.nbytes // s.shape[0]
    data = view[s.offset + first * row_nbytes : s.offset + last * row_nbytes]
    return cut(Tensor(s.name, s.datatype, (last - first, *s.shape[1:]), data), axis, length)
