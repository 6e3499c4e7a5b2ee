"""The methods of ``inference.GRPCInferenceService``, and the calls that lead to them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import grpc
import orjson
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.grpc import service_pb2 as pb

from treadle.errors import InvalidRequestError, RequestError
from treadle.serve.access import Caller, check_may_control, check_may_share, may_share
from treadle.serve.dataplane import DataPlane
from treadle.serve.grpc.calls import Context, Gate, abort
from treadle.serve.grpc.infer import Inference
from treadle.serve.sharedmemory import SharedMemory

SERVICE = "inference.GRPCInferenceService"

_STRANGERS_MAY = ("ServerLive", "ServerReady")
"""Health checks tell nothing, and those who send them have no secrets."""

Message = Any
"""Of protobuf: its generated classes have no types."""
Method = Callable[[Message, Caller], Message | Awaitable[Message]]


class Service:
    """The methods for one listener, and the calls to them."""

    def __init__(
        self, plane: DataPlane, shared: SharedMemory, inference: Inference, gate: Gate
    ) -> None:
        self._plane = plane
        self._shared = shared
        self._inference = inference
        self._gate = gate
        self._changes: set[asyncio.Task[None]] = set()

    def handler(self) -> Any:
        """What a server is given."""
        methods: Mapping[str, Method] = {
            "ServerLive": lambda request, caller: pb.ServerLiveResponse(live=True),
            "ServerReady": lambda request, caller: pb.ServerReadyResponse(ready=self._plane.ready),
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._shared_memory_status,
            "SystemSharedMemoryRegister": self._shared_memory_register,
            "SystemSharedMemoryUnregister": self._shared_memory_unregister,
        }
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(self._call(name, method))
            for name, method in methods.items()
        }
        handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(self._infer)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        for described in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods:
            if described.name not in handlers:
                handlers[described.name] = grpc.unary_unary_rpc_method_handler(
                    self._not_offered(described.name)
                )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _infer(self, message: bytes, context: Context) -> bytes:
        return await self._inference.infer(self._gate, message, context)

    async def _stream(self, messages: Any, context: Context) -> None:
        await self._inference.stream(self._gate, messages, context)

    def _call(self, name: str, method: Method) -> Any:
        """A call: decode, decide who calls, answer, encode."""
        kind = getattr(pb, f"{name}Request")

        async def call(message: bytes, context: Context) -> bytes | None:
            caller = await self._gate.admit(context, strangers=name in _STRANGERS_MAY)
            try:
                answer = method(_parsed(kind, message), caller)
                if inspect.isawaitable(answer):
                    answer = await answer
            except RequestError as error:
                await abort(context, error)
                raise
            encoded: bytes = answer.SerializeToString()
            return encoded

        return call

    def _not_offered(self, name: str) -> Any:
        async def call(message: bytes, context: Context) -> None:
            await self._gate.admit(context)
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{name} is not offered by this server"
            )

        return call

    def _server_metadata(self, request: Message, caller: Caller) -> Message:
        shared_memory = may_share(self._gate.rules, caller)
        content = self._plane.server_metadata(shared_memory=shared_memory)
        return pb.ServerMetadataResponse(**content)

    def _model_ready(self, request: Message, caller: Caller) -> Message:
        ready = self._plane.model_ready(request.name, request.version)
        return pb.ModelReadyResponse(ready=ready)

    def _model_metadata(self, request: Message, caller: Caller) -> Message:
        content = self._plane.model_metadata(request.name, request.version)
        return _from_json(content, pb.ModelMetadataResponse())

    def _model_config(self, request: Message, caller: Caller) -> Message:
        content = self._plane.model_config(request.name, request.version)
        return pb.ModelConfigResponse(config=_from_json(content, model_config_pb2.ModelConfig()))

    def _statistics(self, request: Message, caller: Caller) -> Message:
        content = self._plane.statistics(request.name or None, request.version)
        return _from_json(content, pb.ModelStatisticsResponse())

    def _index(self, request: Message, caller: Caller) -> Message:
        models = self._plane.index(ready_only=request.ready)
        return _from_json({"models": models}, pb.RepositoryIndexResponse())

    async def _load(self, request: Message, caller: Caller) -> Message:
        check_may_control(self._gate.rules, caller)
        if request.parameters:
            raise InvalidRequestError(
                f"load parameters {', '.join(request.parameters)} are not supported: a model is "
                "loaded as the node's configuration file says"
            )
        await self._to_its_end(self._plane.repository.load(request.model_name))
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: Message, caller: Caller) -> Message:
        check_may_control(self._gate.rules, caller)
        # Models here have no dependents, so either value of this one means the same.
        if unknown := request.parameters.keys() - {"unload_dependents"}:
            raise InvalidRequestError(
                f"unknown parameter {', '.join(unknown)}; allowed: unload_dependents"
            )
        await self._to_its_end(self._plane.repository.unload(request.model_name))
        return pb.RepositoryModelUnloadResponse()

    async def _to_its_end(self, change: Coroutine[Any, Any, None]) -> None:
        """Go on with a change of the repository when its caller has lost patience."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changed)
        await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # is in the log: there may be nobody else to tell

    def _shared_memory_status(self, request: Message, caller: Caller) -> Message:
        check_may_share(self._gate.rules, caller)
        response = pb.SystemSharedMemoryStatusResponse()
        for status in self._shared.status(request.name or None):
            region = response.regions[status.name]
            region.name, region.key = status.name, status.key
            region.offset, region.byte_size = status.offset, status.byte_size
        return response

    def _shared_memory_register(self, request: Message, caller: Caller) -> Message:
        check_may_share(self._gate.rules, caller)
        self._shared.register(
            request.name, request.key, request.offset, request.byte_size, caller.uid
        )
        return pb.SystemSharedMemoryRegisterResponse()

    def _shared_memory_unregister(self, request: Message, caller: Caller) -> Message:
        check_may_share(self._gate.rules, caller)
        self._shared.unregister(request.name or None)
        return pb.SystemSharedMemoryUnregisterResponse()


def _parsed(kind: Any, message: bytes) -> Message:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise InvalidRequestError(f"the request is no {kind.__name__}: {error}") from None


def _from_json(content: Mapping[str, Any], message: Message) -> Message:
    """Fill a message with what HTTP answers as JSON: the names are the same."""
    return json_format.Parse(orjson.dumps(content), message)
