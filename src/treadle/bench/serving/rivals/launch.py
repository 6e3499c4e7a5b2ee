"""Other servers as processes: what each is told, where it is found, and that it always ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import aiohttp
import msgspec

import treadle
from treadle.bench.serving.rivals.sweep import Grid, Setting
from treadle.child import ends_with_parent
from treadle.errors import StartError

_SOURCES = Path(treadle.__file__).parents[1]
_SETTINGS = ("MLSERVER_", "LIT_", "LITSERVE_")
"""What somebody set for a server of their own must not change the comparison."""
_END_SECONDS = 10.0
_POLL_SECONDS = 0.1
_SHOWN_LINES = 15
_TIMEOUT_SECONDS = 10.0

Written = Mapping[str, Any]
"""Files of a server by path in its folder, as what is written to them as JSON."""
Model = dict[str, Any]
"""The fields of a ``ModelOptions``, which is not imported here since it needs PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A kind of server."""

    name: str
    package: str
    arguments: tuple[str, ...]
    """Of Python."""
    write: Callable[[int, Sequence[Model], Setting], Written]
    ready_path: str
    """Asked for every model; ``{}`` is its name."""
    grid: Grid
    json_bodies: bool
    start_part: float
    """Of a play's rate, at which the first search begins."""


def _litserve(port: int, models: Sequence[Model], setting: Setting) -> Written:
    return {
        "options.json": {
            "port": port,
            "device": models[0]["device"],
            "models": list(models),
            "max_batch": setting.max_batch,
            "delay_seconds": setting.delay_seconds,
            "api_servers": setting.processes,
            "timeout_seconds": _TIMEOUT_SECONDS,
        }
    }


def _mlserver(port: int, models: Sequence[Model], setting: Setting) -> Written:
    files: dict[str, Any] = {
        "settings.json": {
            "host": "127.0.0.1",
            "http_port": port,
            "grpc_port": _free_port(),
            "metrics_endpoint": None,
            "debug": False,
            "gzip_enabled": False,
            "parallel_workers": setting.processes,
        }
    }
    for model in models:
        files[f"{model['name']}/model-settings.json"] = {
            "name": model["name"],
            "implementation": "treadle.bench.serving.rivals.mlserver_runtime.Model",
            "max_batch_size": setting.max_batch,
            "max_batch_time": setting.delay_seconds,
            "parameters": {"extra": {k: v for k, v in model.items() if k != "name"}},
        }
    return files


RIVALS: Mapping[str, Rival] = MappingProxyType(
    {
        "litserve": Rival(
            name="litserve",
            package="litserve",
            arguments=("-m", "treadle.bench.serving.rivals.litserve_app", "options.json"),
            write=_litserve,
            ready_path="/v2/health/ready",
            grid=Grid(processes=(1, 4)),
            json_bodies=False,
            start_part=0.5,
        ),
        "mlserver": Rival(
            name="mlserver",
            package="mlserver",
            arguments=("-c", "from mlserver.cli import main; main()", "start", "."),
            write=_mlserver,
            ready_path="/v2/models/{}/ready",
            # Without a delay it does not batch at all.
            grid=Grid(delays_seconds=(0.005, 0.001, 0.01), processes=(0, 1)),
            json_bodies=True,  # its HTTP takes no binary tensors
            start_part=0.05,
        ),
    }
)


def packages_of(folder: Path, rival: Rival) -> Path | None:
    """Where the packages of a server are: a virtual environment's, or a plain folder of them."""
    major, minor = sys.version_info[:2]
    own = folder / rival.name
    for packages in (own / "lib" / f"python{major}.{minor}" / "site-packages", own):
        if (packages / rival.package).is_dir():
            return packages.resolve()
    return None


class RivalProcess:
    """A running server in a process group of its own, which ends when the context does."""

    def __init__(
        self, rival: Rival, packages: Path, models: Sequence[Model], setting: Setting
    ) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._name = rival.name
        self._ready = [rival.ready_path.format(model["name"]) for model in models]
        self._written = rival.write(port, models, setting)
        self._command = [sys.executable, *rival.arguments]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_SETTINGS)}
        path = [str(packages), str(_SOURCES), inherited.get("PYTHONPATH", "")]
        self._variables = inherited | {"PYTHONPATH": os.pathsep.join(filter(None, path))}

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-rival-")
        folder = Path(self._folder.name)
        for name, content in self._written.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(msgspec.json.encode(content))
        self._log = (folder / "output.log").open("w+b")
        self._process = subprocess.Popen(  # noqa: S603
            self._command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._variables,
            start_new_session=True,
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
            self._signal(signal.SIGTERM)
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._signal(signal.SIGKILL)  # the leader may have left children behind
            self._process.wait()
            self._log.close()
            self._folder.cleanup()

    async def wait_ready(self, limit_seconds: float) -> None:
        """Wait until every model can be asked.

        Raises:
            StartError: If the server ends before, or it takes too long.
        """
        try:
            async with asyncio.timeout(limit_seconds), aiohttp.ClientSession(self.url) as session:
                for path in self._ready:
                    await self._wait(session, path)
        except TimeoutError:
            raise StartError(self.told(f"not ready after {limit_seconds:g} s")) from None

    def told(self, reason: str) -> str:
        """A reason, and the end of the server's log."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return "\n".join([f"{self._name}: {reason}", *lines[-_SHOWN_LINES:]])

    async def _wait(self, session: aiohttp.ClientSession, path: str) -> None:
        while True:
            if await self._answers(session, path):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _answers(self, session: aiohttp.ClientSession, path: str) -> bool:
        if (code := self._process.poll()) is not None:
            raise StartError(self.told(f"ended with exit code {code}"))
        try:
            async with session.get(path) as response:
                return response.ok
        except aiohttp.ClientError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        # start_new_session made the leader's process id the group's, also after it has ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
