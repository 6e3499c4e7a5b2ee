"""A node in a process of its own, started as its user would start it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

MODELS = Path(__file__).parent / "models"
DEADLINE_SECONDS = 30.0
"""How long anything that must happen may take here. Nothing that works comes near it."""

_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/v2")
_OWN_VARIABLES = ("TREADLE_", "OTEL_", "XDG_", "PYTHONWARNINGS")
_BUG = re.compile(r"^Traceback|^Exception ignored|Exception in callback|never retrieved")
_CLIENT_GONE = re.compile(
    r"^Traceback [^\n]*\n(?: +[^\n]*\n)*"
    r"grpc\._cython\.cygrpc\.ExecuteBatchError: [^\n]*SendStatusFromServer[^\n]*\n?",
    re.MULTILINE,
)
"""gRPC's own, where a client has gone just when its call's end was to be told."""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until ``condition`` holds; fail with ``what`` if it does not."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s in vain: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not looked after does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _is_of_a_job(variables: list[bytes]) -> bool:
    return any(variable.startswith(b"TREADLE_MARK=") for variable in variables)


class Home:
    """A folder with a configuration file, the test models beside it, and a node's own files."""

    def __init__(self, folder: Path, toml: str, environment: Mapping[str, str] | None) -> None:
        self.folder = folder
        self.config = folder / "treadle.toml"
        self.config.write_text(toml)
        self.gates = folder / "gates"
        self.gates.mkdir()
        for module in MODELS.glob("*.py"):
            shutil.copy(module, folder)
        self.own_environment = {
            "TREADLE_RUNTIME_DIR": str(folder / "run"),
            "TREADLE_STATE_DIR": str(folder / "state"),
            "TREADLE_DEVICES": "none",
            **(environment or {}),
        }
        others = {k: v for k, v in os.environ.items() if not k.startswith(_OWN_VARIABLES)}
        self.environment = others | self.own_environment

    def treadle(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "treadle.cli.main", *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def up(self, *options: str) -> RunningNode:
        """Start a node on a free port; it may not be ready yet."""
        return RunningNode(self, options)

    def processes(self) -> list[int]:
        """Every process that the node has started for itself here and that still runs."""
        return [pid for pid, variables in self._started() if not _is_of_a_job(variables)]

    def job_processes(self) -> list[int]:
        """The processes of jobs and services, which outlive the node."""
        return [pid for pid, variables in self._started() if _is_of_a_job(variables)]

    def _started(self) -> list[tuple[int, list[bytes]]]:
        mark = f"TREADLE_RUNTIME_DIR={self.folder / 'run'}".encode()
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                variables = environ.read_bytes().split(b"\0")
                if mark in variables and is_alive(int(environ.parent.name)):
                    found.append((int(environ.parent.name), variables))
        return found

    def end_jobs(self) -> None:
        """Kill what jobs and services have left, and wait for their supervisors."""
        for pid in self.job_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for lock in (self.folder / "state" / "jobs").glob("*/*/lock"):
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX)


class RunningNode:
    """One run of ``treadle up``."""

    def __init__(self, home: Home, options: tuple[str, ...]) -> None:
        self.home = home
        self.socket = home.folder / "run" / "node.sock"
        self.output = home.folder / "stdout"
        self.log = home.folder / "stderr"
        with self.output.open("w") as output, self.log.open("w") as log:
            command = [sys.executable, "-m", "treadle.cli.main", "up", str(home.config)]
            self.process = subprocess.Popen(
                [*command, "--port", "0", *options],
                env=home.environment,
                cwd=home.folder,
                stdout=output,
                stderr=log,
            )
        self.local = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)),
            base_url="http://node",
            timeout=DEADLINE_SECONDS,
        )
        """A client over the local socket: the owner's."""
        self.http = httpx.Client(timeout=DEADLINE_SECONDS)
        """A client over TCP: anybody's. Usable once the port is known."""
        self.exit_code: int | None = None
        self._looked_after = False

    def is_listening(self) -> bool:
        """Whether the local socket can be reached; the node may not be ready yet."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def wait_until_started(self) -> None:
        """Wait until the node has said where it is, ready or not."""

        def has_said() -> bool:
            assert self.process.poll() is None, f"the node ended:\n{self.log.read_text()}"
            return "  log " in self.output.read_text()

        wait_until(has_said, "the node starts")
        self.http.base_url = httpx.URL(f"http://127.0.0.1:{self.port}")

    @property
    def port(self) -> int:
        found = _ADDRESS.search(self.output.read_text())
        assert found, self.output.read_text()
        return int(found[1])

    @property
    def grpc(self) -> str:
        """The address of its gRPC port."""
        return f"127.0.0.1:{self.status()['grpc']['port']}"

    def status(self) -> dict[str, Any]:
        answer = self.local.get("/treadle/v1/status")
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def model(self, name: str) -> dict[str, Any]:
        """What the node says of one model."""
        found: dict[str, Any] = next(m for m in self.status()["models"] if m["name"] == name)
        return found

    def wait_for_waiting(self, model: str, count: int) -> None:
        """Wait until so many requests wait for ``model``."""
        wait_until(
            lambda: self.model(model)["waiting"] == count, f"{count} requests wait for {model}"
        )

    @contextlib.contextmanager
    def shut(self, gate: str) -> Iterator[Path]:
        """Hold what runs into ``gate`` until the end of the block, or until its file is gone."""
        path = self.home.gates / gate
        path.touch()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def ran(self) -> list[str]:
        """The batches that the ``step`` models started, in order: ``name: x x …``."""
        file = self.home.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    def forget_what_ran(self) -> None:
        (self.home.folder / "ran").unlink(missing_ok=True)

    def wait_for_run(self, batch: str) -> None:
        wait_until(lambda: batch in self.ran(), f"{batch!r} runs")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_ended(self) -> int:
        """Wait for the end and return the exit code; what that should be, the test knows."""
        self._looked_after = True
        self.exit_code = self.process.wait(DEADLINE_SECONDS)
        return self.exit_code

    def close(self) -> None:
        """End the node as its operator would, and see that it ends well."""
        self.http.close()
        self.local.close()
        for gate in self.home.gates.iterdir():
            gate.unlink()
        early = None if self._looked_after else self.process.poll()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(DEADLINE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
        log = self.log.read_text()
        assert early is None, f"the node ended by itself with exit code {early}:\n{log}"
        assert self._looked_after or code == 0, f"exit code {code}:\n{log}"
        bugs = [line for line in _CLIENT_GONE.sub("", log).splitlines() if _BUG.search(line)]
        assert not bugs, f"the node met an error that it did not expect:\n{log}"
        wait_until(lambda: not self.home.processes(), "no process is left behind")
