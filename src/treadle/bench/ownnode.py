"""A node that is started for a measurement, apart from every other, and ended after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.child import ends_with_parent
from treadle.client.node import NodeClient
from treadle.errors import StartError

READY_SECONDS = 120.0
"""How long a node may take to load its models."""
_END_SECONDS = 15.0
_POLL_SECONDS = 0.05
_SHOWN_LINES = 15
_LONGEST_FOLDER = 80
"""Bytes; a socket's path may have 107."""
_NOT_BROKEN = ("", "not loaded")
"""Reasons of a model that waits for its turn to load, or should not be loaded."""


class OwnNode:
    """A node process with its own socket, state and port.

    It ends when the context does, whatever happened, and also when this process is killed.
    """

    def __init__(self, file: Path, policy: str | None = None) -> None:
        self._command = [sys.executable, "-m", "treadle.cli.main", "up", str(file), "--port", "0"]
        if policy is not None:
            self._command += ["--policy", policy]

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-", dir=_short_folder())
        folder = Path(self._folder.name)
        self.socket = folder / "node.sock"
        self._log = (folder / "output.log").open("w+b")
        private = {"TREADLE_RUNTIME_DIR": str(folder), "TREADLE_STATE_DIR": str(folder)}
        inherited = {k: v for k, v in os.environ.items() if k != "TREADLE_SOCKET"}
        self._process = subprocess.Popen(  # noqa: S603
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=inherited | private,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the node
            preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.terminate()
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also at a second Ctrl-C
            self._process.kill()
            self._process.wait()
            self._log.close()
            self._folder.cleanup()

    async def wait_ready(self, client: NodeClient, limit_seconds: float = READY_SECONDS) -> None:
        """Wait until every model that should be loaded is.

        Raises:
            StartError: If the node ends, a model cannot be loaded, or it takes too long.
        """
        try:
            async with asyncio.timeout(limit_seconds):
                while True:
                    if await self._ready(client):
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StartError(
                f"the node is not ready after {limit_seconds:g} s:\n{self._last_words()}"
            ) from None

    async def _ready(self, client: NodeClient) -> bool:
        if (code := self._process.poll()) is not None:
            raise StartError(f"the node ended with exit code {code}:\n{self._last_words()}")
        try:
            status = await client.get("/treadle/v1/status")
        except ConnectionError:
            return False
        for model in status["models"]:
            if model["state"] == "UNAVAILABLE" and model["reason"] not in _NOT_BROKEN:
                raise StartError(f"model '{model['name']}' does not load: {model['reason']}")
        return bool(status["ready"])

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


def _short_folder() -> str:
    """Where a folder for a socket may be made: the usual place, unless its path is long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108
