"""``ModelInfer`` and ``ModelStreamInfer``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from grpc import StatusCode

from treadle.errors import RequestError
from treadle.serve.access import Caller, check_may_share
from treadle.serve.dataplane import DataPlane
from treadle.serve.grpc.calls import Context, Gate, abort, log_error, metadata_of
from treadle.serve.grpc.messages import decode_message, decode_request, encode_answer, encode_error
from treadle.serve.grpc.wire import SplitRequest, split_request
from treadle.serve.helper import HelperProcess
from treadle.serve.model import ServedModel
from treadle.serve.request import InferenceRequest
from treadle.serve.sharedmemory import SharedMemory
from treadle.serve.tensors import Tensor
from treadle.serve.ticket import Ticket
from treadle.serve.tracing import Tracer

_SMALL_BYTES = 48 << 10
"""About a millisecond's worth of typed contents or of text to walk."""
_MOST_OPEN = 64
"""Requests of one stream that are not answered yet, or whose answer the client has not taken."""
_LONGEST_LOGGED_ID = 128


class Inference:
    """Takes requests to the data plane and answers back, one by one or as streams."""

    def __init__(
        self,
        plane: DataPlane,
        helper: HelperProcess,
        shared: SharedMemory,
        tracer: Tracer | None,
    ) -> None:
        self._plane = plane
        self._helper = helper
        self._shared = shared
        self._tracer = tracer
        self._reading: set[asyncio.Task[None]] = set()
        self._closing = False

    def close(self) -> None:
        """Take nothing more from any stream; what came is answered."""
        self._closing = True
        for reading in self._reading:
            reading.cancel()

    async def infer(self, gate: Gate, message: bytes, context: Context) -> bytes:
        """Answer a single request."""
        call = _Call(gate, await gate.admit(context), context)
        split = SplitRequest()
        try:
            request, ticket = await self._accept(call, message, split, parts=False)
            answer = await self._plane.answer(ticket)
            response = await self._write(request, ticket, answer.outputs)
        except RequestError as error:
            log_error(split.model_name, call.request_id(split), error)
            await abort(context, error)
            raise
        self._record(call, split, ticket)
        return response

    async def stream(self, gate: Gate, messages: AsyncIterator[bytes], context: Context) -> None:
        """Answer the requests of a stream, each as soon as it is done."""
        call = _Call(gate, await gate.admit(context), context)
        room = asyncio.Semaphore(_MOST_OPEN)
        async with asyncio.TaskGroup() as group:

            async def read() -> None:
                async for message in messages:
                    await room.acquire()
                    group.create_task(answer(message))

            async def answer(message: bytes) -> None:
                try:
                    await self._answer_in_stream(call, message)
                finally:
                    room.release()

            reading = group.create_task(read())
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)
            if self._closing:
                reading.cancel()
        if self._closing:
            await context.abort(StatusCode.UNAVAILABLE, "the server is shutting down")

    async def _answer_in_stream(self, call: _Call, message: bytes) -> None:
        """Do all that is due for one request of a stream."""
        split = SplitRequest()
        try:
            request, ticket = await self._accept(call, message, split, parts=True)
            async with contextlib.aclosing(self._plane.parts(ticket)) as parts:
                async for outputs, final in parts:
                    if outputs or request.empty_final:
                        await call.write(await self._write(request, ticket, outputs, final=final))
        except RequestError as error:
            log_error(split.model_name, call.request_id(split), error)
            await call.write(encode_error(split.id, str(error)))
        else:
            self._record(call, split, ticket)

    async def _accept(
        self, call: _Call, message: bytes, split: SplitRequest, *, parts: bool
    ) -> tuple[InferenceRequest, Ticket]:
        """Take a request to the data plane; ``split`` is filled with what is known of it."""
        arrived = self._plane.now()
        split_request(message, split)
        model, request = await self._read(call, message, split)
        return request, self._plane.submit(model, request, arrived, parts=parts)

    async def _read(
        self, call: _Call, message: bytes, split: SplitRequest
    ) -> tuple[ServedModel, InferenceRequest]:
        model = self._plane.find(split.model_name, split.model_version)
        try:
            request = await self._decode(model, message, split)
            if request.shares_memory:
                check_may_share(call.gate.rules, call.caller)
                await self._shared.fill(request)
        except RequestError as error:
            self._plane.count_refusal(model, error)
            raise
        left = call.context.time_remaining()
        if left is not None:
            request.timeout_seconds = min(left, request.timeout_seconds or left)
        return model, request

    async def _decode(
        self, model: ServedModel, message: bytes, split: SplitRequest
    ) -> InferenceRequest:
        texts = any(spec.datatype == "BYTES" for spec in model.inputs)
        # Raw numbers are not looked at; typed contents and texts are, one by one.
        if len(split.head) > _SMALL_BYTES or (texts and len(message) > _SMALL_BYTES):
            return await self._helper.run(decode_message, message)
        return decode_request(split, texts=texts)

    async def _write(
        self,
        request: InferenceRequest,
        ticket: Ticket,
        outputs: Sequence[Tensor],
        *,
        final: bool | None = None,
    ) -> bytes:
        model, tensors = ticket.served, list(outputs)
        if tensors:
            tensors, _ = self._plane.select_outputs(request, outputs)
        if tensors and request.shares_memory:
            tensors = await self._shared.put(request, tensors)
        return encode_answer(model.name, model.config.version, request.id, tensors, final=final)

    def _record(self, call: _Call, split: SplitRequest, ticket: Ticket) -> None:
        if self._tracer is not None:
            metadata = call.metadata.items()
            headers = {k.encode(): v.encode("latin-1", "replace") for k, v in metadata}
            request_id = call.request_id(split)
            now = self._plane.now()
            self._tracer.record(ticket, ticket.answer.result(), headers, request_id, now)


class _Call:
    """One call, and the turn to write to it: the library takes one message at a time."""

    def __init__(self, gate: Gate, caller: Caller, context: Context) -> None:
        self.gate = gate
        self.caller = caller
        self.context = context
        self.metadata = metadata_of(context)
        self._writing = asyncio.Lock()

    def request_id(self, split: SplitRequest) -> str:
        """What a request of it is called in logs and traces."""
        return self.metadata.get("x-request-id", "") or split.id[:_LONGEST_LOGGED_ID]

    async def write(self, response: bytes) -> None:
        """Send one message of a stream."""
        async with self._writing:
            await self.context.write(response)
