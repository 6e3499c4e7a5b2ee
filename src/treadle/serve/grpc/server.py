"""The gRPC servers of a node: one for TCP, one for a Unix socket."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import grpc

from treadle.errors import StartError
from treadle.serve.access import AccessRules
from treadle.serve.dataplane import DataPlane
from treadle.serve.grpc.calls import Gate
from treadle.serve.grpc.health import Health
from treadle.serve.grpc.infer import Inference
from treadle.serve.grpc.service import Service
from treadle.serve.sharedmemory import SharedMemory

_SILENCE_MS = 20_000
_STREAMS_OF_A_CONNECTION = 1000


class GrpcServer:
    """Listens from the moment it is told where; answers once it is started."""

    def __init__(
        self,
        plane: DataPlane,
        shared: SharedMemory,
        inference: Inference,
        rules: AccessRules,
        max_message_bytes: int,
    ) -> None:
        self._plane = plane
        self._shared = shared
        self._inference = inference
        self._rules = rules
        self._closing = asyncio.Event()
        self._servers: list[Any] = []
        self._options = (
            ("grpc.so_reuseport", 0),  # a port in use is an error
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", _STREAMS_OF_A_CONNECTION),
            # Clients that are gone without a word are noticed, those that only wait are kept.
            ("grpc.keepalive_time_ms", _SILENCE_MS),
            ("grpc.keepalive_timeout_ms", _SILENCE_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        )

    def listen_tcp(self, host: str, port: int) -> int:
        """Open a port, 0 for a free one; returns which it is.

        Raises:
            StartError: If it cannot be had.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            opened: int = self._new_server(local=False).add_insecure_port(address)
        except RuntimeError as error:
            raise StartError(
                f"cannot listen for gRPC on {address}, it may be in use by another program; choose "
                f"another port with grpc.port, TREADLE_GRPC_PORT or --grpc-port ({error})"
            ) from error
        return opened

    def listen_local(self, path: Path) -> None:
        """Open a Unix socket that only its owner can reach.

        Raises:
            StartError: If that cannot be.
        """
        before = os.umask(0o177)
        try:
            self._new_server(local=True).add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise StartError(f"cannot open the gRPC socket {path}: {error}") from error
        finally:
            os.umask(before)

    async def start(self) -> None:
        """Answer calls."""
        for server in self._servers:
            await server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, and end those that are not done after a while."""
        self._closing.set()
        self._inference.close()
        await asyncio.gather(*(server.stop(grace_seconds) for server in self._servers))

    def _new_server(self, *, local: bool) -> Any:
        gate = Gate(self._rules, local=local)
        server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers(
            (
                Service(self._plane, self._shared, self._inference, gate).handler(),
                Health(self._plane, gate, self._closing).handler(),
            )
        )
        self._servers.append(server)
        return server
