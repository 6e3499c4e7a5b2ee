"""``grpc.health.v1.Health``: whether the server, or one model, takes requests."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2 as pb

from treadle.errors import InvalidRequestError, NotFoundError
from treadle.serve.dataplane import DataPlane
from treadle.serve.grpc.calls import Context, Gate, abort
from treadle.serve.grpc.service import SERVICE

_LOOK_SECONDS = 0.2
"""A watch looks so often: a model's worker may end at any time."""

_Status = pb.HealthCheckResponse


class Health:
    """The health service: the names of services are those of models, and the server's."""

    def __init__(self, plane: DataPlane, gate: Gate, closing: asyncio.Event) -> None:
        self._plane = plane
        self._gate = gate
        self._closing = closing

    def handler(self) -> Any:
        """What a server is given."""
        return grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health",
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            },
        )

    async def _check(self, message: bytes, context: Context) -> bytes:
        service = await self._asked(message, context)
        status = self._status(service)
        if status == _Status.SERVICE_UNKNOWN:
            await abort(context, NotFoundError(f"no service and no model '{service}' is here"))
        return _encoded(status)

    async def _watch(self, message: bytes, context: Context) -> None:
        """Tell the status, and again whenever it is another one."""
        service = await self._asked(message, context)
        told = None
        while not self._closing.is_set():
            status = self._status(service)
            if status != told:
                await context.write(_encoded(status))
                told = status
            try:
                await asyncio.wait_for(self._closing.wait(), _LOOK_SECONDS)
            except TimeoutError:
                continue
        if told != _Status.NOT_SERVING:
            await context.write(_encoded(_Status.NOT_SERVING))

    async def _asked(self, message: bytes, context: Context) -> str:
        """Which service is asked for. Names of models are not for strangers."""
        try:
            service: str = pb.HealthCheckRequest.FromString(message).service
        except DecodeError as error:
            await abort(context, InvalidRequestError(f"no HealthCheckRequest: {error}"))
            raise
        await self._gate.admit(context, strangers=service in ("", SERVICE))
        return service

    def _status(self, service: str) -> int:
        if service in ("", SERVICE):
            ready = self._plane.ready
        else:
            try:
                ready = self._plane.repository.get(service).ready and not self._plane.draining
            except NotFoundError:
                return int(_Status.SERVICE_UNKNOWN)
        return int(_Status.SERVING if ready else _Status.NOT_SERVING)


def _encoded(status: int) -> bytes:
    encoded: bytes = _Status(status=status).SerializeToString()
    return encoded
