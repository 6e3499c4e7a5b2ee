"""The node's gRPC listeners: where they are, or why there are none."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from treadle.node.config import GrpcTable
from treadle.node.listeners import claim_socket
from treadle.serve.access import AccessRules
from treadle.serve.dataplane import DataPlane
from treadle.serve.helper import HelperProcess
from treadle.serve.sharedmemory import SharedMemory
from treadle.serve.tracing import Tracer

if TYPE_CHECKING:
    from treadle.serve.grpc.server import GrpcServer

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

_log = logging.getLogger("treadle.node")


class NodeGrpc:
    """What the configuration asks for, if the libraries for it are installed."""

    def __init__(
        self,
        config: GrpcTable,
        folder: Path,
        plane: DataPlane,
        helper: HelperProcess,
        shared: SharedMemory,
        rules: AccessRules,
        tracer: Tracer | None,
    ) -> None:
        """Open the listeners.

        Raises:
            StartError: If one cannot be had.
        """
        self._host = config.host
        self.port: int | None = None
        self.socket: Path | None = None
        self.reason = ""
        """Why it does not listen; empty if it does."""
        self._server: GrpcServer | None = None
        self._lock: IO[str] | None = None
        if config.port is None and not config.socket:
            self.reason = "neither grpc.port nor grpc.socket is set"
            return
        try:
            with _without_fork_handlers():
                from treadle.serve.grpc.infer import Inference
                from treadle.serve.grpc.server import GrpcServer
        except ImportError as error:
            self.reason = f"{error.name} is not installed: pip install 'treadle[grpc]'"
            _log.error("gRPC is off: %s", self.reason)
            return
        inference = Inference(plane, helper, shared, tracer)
        self._server = GrpcServer(plane, shared, inference, rules, config.max_message_bytes)
        if config.port is not None:
            self.port = self._server.listen_tcp(config.host, config.port)
        if config.socket:
            self.socket = folder / config.socket
            self._lock = claim_socket(self.socket)
            self._server.listen_local(self.socket)

    async def start(self) -> None:
        """Answer calls."""
        if self._server is not None:
            await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """End: what is under way has a while left."""
        if self._server is not None:
            await self._server.stop(grace_seconds)
        if self.socket is not None:
            self.socket.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def status(self) -> dict[str, Any]:
        """What ``treadle status`` and the node's own API tell."""
        return {
            "host": self._host,
            "port": self.port,
            "socket": None if self.socket is None else str(self.socket),
            "reason": self.reason,
        }


@contextlib.contextmanager
def _without_fork_handlers() -> Iterator[None]:
    """Start the library without what it does when its process forks.

    Children of the node become other programs at once. The library is told by a variable when it
    is imported; workers and jobs do not inherit that.
    """
    before = os.environ.get(_FORK_SUPPORT)
    os.environ[_FORK_SUPPORT] = "0"
    try:
        yield
    finally:
        del os.environ[_FORK_SUPPORT]
        if before is not None:
            os.environ[_FORK_SUPPORT] = before
