"""A node for one play: started in folders of its own, asked, and ended with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import treadle
from treadle.bench.colocation.gate import LIBRARY_VARIABLE, shared_folder
from treadle.bench.monitoring.scenario import clean_environment
from treadle.child import ends_with_parent
from treadle.client.node import NodeClient
from treadle.errors import RequestError, StartError, TreadleError
from treadle.turnstile import gate_library_path
from treadle.turnstile.build import BuildError, build

_MARK = "TREADLE_BENCH_MIX"
"""A variable that tells every process of a play from all others."""
_ASK_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_END_SECONDS = 20.0
_POLL_SECONDS = 0.1
_TAIL_LINES = 20
_TREADLE = (sys.executable, "-m", "treadle.cli.main")


class MixNode:
    """A node process, its folders, and everything that runs under it.

    All of it ends with the context, whatever happened: jobs are cancelled, then the node is
    ended, and what is left of either is killed.
    """

    def __init__(self, deadline: float) -> None:
        """Prepare the folders; nothing is started yet.

        Args:
            deadline: Monotonic time after which nothing is waited for.
        """
        self._deadline = deadline
        # A socket and the folder of an MPS daemon need short paths.
        self.folder = Path(tempfile.mkdtemp(prefix="treadle-", dir="/tmp"))
        self._pages = Path(tempfile.mkdtemp(prefix="treadle-", dir=shared_folder()))
        self.out = self.folder / "out"
        self.out.mkdir()
        self.environment = clean_environment() | {
            "TREADLE_STATE_DIR": str(self.folder / "state"),
            "TREADLE_RUNTIME_DIR": str(self.folder / "run"),
            "TREADLE_TURNSTILE_DIR": str(self._pages),
            _MARK: str(self.folder),
            "PYTHONPATH": _search_path(),
        }
        for kept in (LIBRARY_VARIABLE, "TREADLE_DEVICES"):
            if kept in os.environ:
                self.environment[kept] = os.environ[kept]
        self._socket = self.folder / "run" / "node.sock"
        self._log = self.folder / "node.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def start(self, configuration: str) -> None:
        """Start the node, and wait until it takes jobs.

        Raises:
            StartError: If it ends, or takes too long.
        """
        file = self.folder / "treadle.toml"
        file.write_text(configuration)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [*_TREADLE, "up", str(file), "--port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the node
                # Should this process be killed, the node ends; the rest has limits of its own.
                preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509
            )
        self.wait(self._takes_jobs, "the node takes jobs")

    def need_gate(self) -> None:
        """See that there is a launch gate, building one if it was not.

        Raises:
            StartError: If it cannot be had.
        """
        try:
            gate_library_path()
        except TreadleError:
            library = self._pages.parent / f"{self._pages.name}.so"
            try:
                build(library)
            except BuildError as error:
                raise StartError(f"no launch gate: {error}") from None
            self.environment[LIBRARY_VARIABLE] = str(library)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until something holds, as long as there is time and the node runs.

        Raises:
            StartError: If it does not.
        """
        while not done():
            if self._process is None or self._process.poll() is not None:
                raise StartError(f"the node has ended:\n{self.last_words()}")
            if time.monotonic() > self._deadline:
                raise StartError(f"out of time before {what}:\n{self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def status(self) -> dict[str, Any]:
        """What the node says of itself."""
        answer: dict[str, Any] = self._ask(lambda node: node.get("/treadle/v1/status"))
        return answer

    def job(self, number: int) -> dict[str, Any]:
        """What it says of a job."""
        answer: dict[str, Any] = self._ask(lambda node: node.get(f"/treadle/v1/jobs/{number}"))
        return answer

    def cancel(self, number: int) -> None:
        """Have a job ended. It gets time to write what it has to."""
        with contextlib.suppress(RequestError):  # it is over
            self._ask(lambda node: node.post(f"/treadle/v1/jobs/{number}/cancel"))

    def output(self, number: int) -> str:
        """The last lines that a job wrote."""
        return self._text(f"/treadle/v1/jobs/{number}/log?tail={_TAIL_LINES}")

    def metrics(self) -> str:
        """Its Prometheus page."""
        return self._text("/metrics")

    def treadle(self, *words: str) -> str:
        """Run a command of treadle's beside the node, and return what it printed.

        Raises:
            TreadleError: If it failed.
        """
        done = subprocess.run(  # noqa: S603
            [*_TREADLE, *words],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise TreadleError(f"treadle {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def submit(self, words: Sequence[str]) -> int:
        """Queue a job with ``treadle submit``; its number."""
        (number,) = json.loads(self.treadle("submit", *words))["ids"]
        return int(number)

    def last_words(self) -> str:
        """The end of what the node has printed."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-_TAIL_LINES:])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._process is not None:
                with contextlib.suppress(TreadleError, OSError, TimeoutError):
                    self._end_jobs()
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END_SECONDS)
                self._process.kill()
                self._process.wait()
        finally:
            _kill_marked(self.environment)
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self._pages, ignore_errors=True)
            self._pages.with_name(f"{self._pages.name}.so").unlink(missing_ok=True)

    def _takes_jobs(self) -> bool:
        try:
            return not self.status()["jobs"]["trouble"]
        except (ConnectionError, TimeoutError):
            return False

    def _end_jobs(self) -> None:
        ends = time.monotonic() + _END_SECONDS
        while time.monotonic() < ends:
            jobs = self.status()["jobs"]
            left = [job["id"] for job in (*jobs["placed"], *jobs["waiting"])]
            if not left:
                return
            for number in left:
                self.cancel(number)
            time.sleep(_POLL_SECONDS)

    def _ask(self, question: Callable[[NodeClient], Any]) -> Any:
        async def ask() -> Any:
            async with asyncio.timeout(_ASK_SECONDS), NodeClient(self._socket) as node:
                return await question(node)

        return asyncio.run(ask())

    def _text(self, path: str) -> str:
        async def collect(node: NodeClient) -> str:
            return b"".join([part async for part in node.stream(path)]).decode(errors="replace")

        text: str = self._ask(collect)
        return text


def _search_path() -> str:
    """Where programs that start in other folders find this treadle, and what else is found here."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = Path(treadle.__file__).resolve().parents[1]
    return os.pathsep.join([str(here), *(str(Path(path).resolve()) for path in paths if path)])


def _kill_marked(environment: Mapping[str, str]) -> None:
    """Kill what is left of a play."""
    mark = f"{_MARK}={environment[_MARK]}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
