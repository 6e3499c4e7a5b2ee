"""The servers that are compared, and how each is set up for a workload."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bench.servers.environments import MODEL_IN_PACKAGE, Environment
from bench.servers.processes import Launch, free_ports
from bench.servers.workloads import BATCH_DELAY_SECONDS, Workload

_APPS = Path(__file__).with_name("apps")


class Contender(Protocol):
    """A kind of server."""

    @property
    def name(self) -> str: ...

    @property
    def environment(self) -> str | None:
        """Name of the environment it needs; None for treadle's own."""

    @property
    def setup(self) -> str:
        """How it is set up, in a sentence for the reader of the results."""

    def offers(self, workload: Workload) -> bool:
        """Whether it can do this workload at all."""

    def echoes(self, workload: Workload) -> bool:
        """Whether it gives back the request instead of a model's answer."""

    def missing(self, environment: Environment) -> str | None:
        """What must be done before it can run; None if nothing."""

    def launch(self, workload: Workload, folder: Path, environment: Environment) -> Launch:
        """Write its files into ``folder`` and say how to start it."""


@dataclass(frozen=True, slots=True)
class Treadle:
    """The server that this repository is about."""

    name: ClassVar[str] = "treadle"
    environment: ClassVar[str | None] = None
    setup: ClassVar[str] = "treadle up; one worker process, metrics on"

    def offers(self, workload: Workload) -> bool:
        return True

    def echoes(self, workload: Workload) -> bool:
        return False

    def missing(self, environment: Environment) -> str | None:
        if not environment.script("treadle").exists():
            return f"{environment.script('treadle')} is missing: pip install -e ."
        if not environment.model_file.exists():
            return "magika is missing: pip install --no-deps -r requirements/quickstart.txt"
        return None

    def launch(self, workload: Workload, folder: Path, environment: Environment) -> Launch:
        if workload.model == "identity":
            shutil.copy(_APPS / "treadle_identity.py", folder / "identity.py")
            source = 'factory = "identity:load"'
        else:
            # A model gets the threads that its share of the CPU comes to; the others have one.
            share = 1 / len(os.sched_getaffinity(0))
            source = f'onnx = "package:{MODEL_IN_PACKAGE}"\nshare = {share}'
        (port,) = free_ports(1)
        text = (
            f"[http]\nport = {port}\n\n"
            f'[[model]]\nname = "{workload.model}"\n{source}\nmax_batch = {workload.max_batch}\n'
        )
        if workload.max_batch > 1:
            text += f"max_delay_seconds = {BATCH_DELAY_SECONDS}\n"
        (folder / "treadle.toml").write_text(text)
        return Launch(
            command=[str(environment.script("treadle")), "up", "treadle.toml"],
            folder=folder,
            ready_url=f"http://127.0.0.1:{port}/v2/health/ready",
            url=f"http://127.0.0.1:{port}/v2/models/{workload.model}/infer",
            # Apart from a node that the user may be running.
            variables={
                "TREADLE_STATE_DIR": str(folder),
                "TREADLE_SOCKET": str(folder / "node.sock"),
            },
        )


@dataclass(frozen=True, slots=True)
class Uvicorn:
    """The floor: an ASGI application that does nothing but the work."""

    name: ClassVar[str] = "uvicorn"
    environment: ClassVar[str | None] = "uvicorn"
    setup: ClassVar[str] = (
        "bare ASGI, one process, uvloop, httptools, no access log; echoes the body, "
        "and for file-type parses, runs and formats on the event loop"
    )

    def offers(self, workload: Workload) -> bool:
        return workload.max_batch == 1

    def echoes(self, workload: Workload) -> bool:
        return workload.model == "identity"

    def missing(self, environment: Environment) -> str | None:
        return None

    def launch(self, workload: Workload, folder: Path, environment: Environment) -> Launch:
        (port,) = free_ports(1)
        command = [str(environment.python), str(_APPS / "uvicorn_app.py"), "--port", str(port)]
        if workload.model == "file-type":
            command += ["--onnx", str(environment.model_file)]
        root = f"http://127.0.0.1:{port}"
        return Launch(command=command, folder=folder, ready_url=f"{root}/", url=f"{root}/")


@dataclass(frozen=True, slots=True)
class MLServer:
    """MLServer with a custom runtime, as one would deploy it or as fast as it goes."""

    inline: bool
    """Run the model in the server's own process, and leave out metrics."""
    environment: ClassVar[str | None] = "mlserver"

    @property
    def name(self) -> str:
        return "mlserver-inline" if self.inline else "mlserver"

    @property
    def setup(self) -> str:
        ways = "model in the server's process, no metrics" if self.inline else "one worker process"
        return f"{ways}; httptools and uvloop, no debug, no access log, no gzip"

    def offers(self, workload: Workload) -> bool:
        return not workload.binary

    def echoes(self, workload: Workload) -> bool:
        return False

    def missing(self, environment: Environment) -> str | None:
        return None

    def launch(self, workload: Workload, folder: Path, environment: Environment) -> Launch:
        shutil.copy(_APPS / "mlserver_runtime.py", folder)
        http_port, grpc_port, metrics_port = free_ports(3)
        server: dict[str, Any] = {
            "host": "127.0.0.1",
            "http_port": http_port,
            "grpc_port": grpc_port,
            "metrics_port": metrics_port,
            "debug": False,
            "gzip_enabled": False,
            "parallel_workers": 0 if self.inline else 1,
        }
        if self.inline:
            server["metrics_endpoint"] = None
        kind = {"identity": "Identity", "file-type": "FileType"}[workload.model]
        model: dict[str, Any] = {
            "name": workload.model,
            "implementation": f"mlserver_runtime.{kind}",
            "parameters": {"uri": str(environment.model_file)},
        }
        if workload.max_batch > 1:
            model |= {
                "max_batch_size": workload.max_batch,
                "max_batch_time": BATCH_DELAY_SECONDS,
            }
        (folder / "settings.json").write_text(json.dumps(server))
        (folder / "model-settings.json").write_text(json.dumps(model))
        root = f"http://127.0.0.1:{http_port}/v2/models/{workload.model}"
        return Launch(
            command=[str(environment.script("mlserver")), "start", "."],
            folder=folder,
            # The server as a whole says ready before it has loaded anything.
            ready_url=f"{root}/ready",
            url=f"{root}/infer",
        )


@dataclass(frozen=True, slots=True)
class LitServe:
    """LitServe with one LitAPI, as released or with its faster queue made to work."""

    mended: bool
    """Use ``fast_queue``, whose defects the application mends."""
    environment: ClassVar[str | None] = "litserve"

    @property
    def name(self) -> str:
        return "litserve-mended" if self.mended else "litserve"

    @property
    def setup(self) -> str:
        queue = "fast_queue with its defects mended" if self.mended else "as released"
        return f"{queue}; one worker, one API server, finished responses, no access log"

    def offers(self, workload: Workload) -> bool:
        return not workload.binary

    def echoes(self, workload: Workload) -> bool:
        return False

    def missing(self, environment: Environment) -> str | None:
        return None

    def launch(self, workload: Workload, folder: Path, environment: Environment) -> Launch:
        (port,) = free_ports(1)
        command = [str(environment.python), str(_APPS / "litserve_app.py"), "--port", str(port)]
        command += ["--max-batch", str(workload.max_batch)]
        command += ["--batch-delay-seconds", str(BATCH_DELAY_SECONDS)]
        if workload.model == "file-type":
            command += ["--onnx", str(environment.model_file)]
        if self.mended:
            command.append("--mended-fast-queue")
        root = f"http://127.0.0.1:{port}"
        return Launch(
            command=command, folder=folder, ready_url=f"{root}/health", url=f"{root}/predict"
        )


CONTENDERS: tuple[Contender, ...] = (
    Treadle(),
    Uvicorn(),
    MLServer(inline=False),
    MLServer(inline=True),
    LitServe(mended=False),
    LitServe(mended=True),
)
