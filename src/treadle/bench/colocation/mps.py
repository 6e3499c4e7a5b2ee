"""An MPS daemon of our own, in its own directories; every word with it is bounded in time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.errors import TreadleError

_CONTROL = "nvidia-cuda-mps-control"
_ELSEWHERE = (Path("/usr/local/nvidia/bin"), Path("/usr/bin"))
_COMMAND_SECONDS = 10.0
_POLL_SECONDS = 0.05


class MpsDaemon:
    """A control daemon, started at once and stopped by ``close``. Used as a context manager."""

    def __init__(self, control: str | None = None, timeout_seconds: float = _COMMAND_SECONDS):
        """Start it.

        Args:
            control: The control program, searched for where None.
            timeout_seconds: For each word with it.

        Raises:
            TreadleError: If there is no such program, or it does not answer.
        """
        self._control = control or _find_control()
        self._timeout = timeout_seconds
        self._home = Path(tempfile.mkdtemp(prefix="treadle-mps-"))
        self.pipe_directory = self._home / "pipe"
        log_directory = self._home / "log"
        for directory in (self.pipe_directory, log_directory):
            directory.mkdir(mode=0o700)
        self._environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_directory),
            "CUDA_MPS_LOG_DIRECTORY": str(log_directory),
        }
        try:
            self._call("-d")
            self.tell("get_server_list")
        except TreadleError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tell(self, command: str) -> str:
        """Say one control command and return the answer.

        Raises:
            TreadleError: If it fails or is not answered in time.
        """
        return self._call(said=command + "\n")

    def close(self) -> None:
        """Stop it, by force if it does not listen, and remove its directories."""
        pids = self._pids()
        with contextlib.suppress(TreadleError):
            self.tell("quit")
        if not _wait_for(lambda: not any(map(_lives, pids)), self._timeout):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._home, ignore_errors=True)

    def _call(self, *arguments: str, said: str = "") -> str:
        try:
            # Files, not pipes: the daemon would hold a pipe open for as long as it lives.
            with tempfile.TemporaryFile("w+") as answer:
                done = subprocess.run(  # noqa: S603  # the driver's own program
                    [self._control, *arguments],
                    input=said,
                    stdout=answer,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=self._environment,
                    timeout=self._timeout,
                    check=False,
                    start_new_session=True,
                )
                answer.seek(0)
                text = answer.read().strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TreadleError(f"MPS: {error}") from error
        if done.returncode != 0:
            raise TreadleError(f"MPS: {text or f'exit code {done.returncode}'}")
        return text

    def _pids(self) -> list[int]:
        found = []
        for file in self.pipe_directory.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                found.append(int(file.read_text().strip()))
        return found


def _find_control() -> str:
    found = shutil.which(_CONTROL)
    places = [found] if found else [str(place / _CONTROL) for place in _ELSEWHERE]
    for place in places:
        if Path(place).exists():
            return place
    raise TreadleError(f"MPS: no {_CONTROL} here")


def _lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
