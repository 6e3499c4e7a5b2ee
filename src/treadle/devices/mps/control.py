"""The control program of one daemon: one command at a time, each bounded in time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

from treadle.devices.mps.health import MpsError, MpsRefusedError, MpsTimeoutError, MpsTimeouts

_T = TypeVar("_T")

PROGRAM = "nvidia-cuda-mps-control"
ELSEWHERE = (Path("/usr/local/nvidia/bin"), Path("/usr/bin"))
_ANSWER_BYTES = 1 << 20
_SHOWN = 200
_KILLED_SECONDS = 2.0
"""Until a killed program is gone; one that waits inside the driver may never be."""
_NOT_INHERITED = (
    "CUDA_MPS_",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_INJECTION",
    "TREADLE_",
    "LD_PRELOAD",
)
"""The caller's own MPS, gate and GPUs are none of a daemon's. Its servers would be gated, too."""


def find_control(elsewhere: Sequence[Path] = ELSEWHERE) -> Path:
    """Where the control program is: on the PATH, or in one of the folders that drivers use.

    Raises:
        MpsError: If it is nowhere.
    """
    if found := shutil.which(PROGRAM):
        return Path(found)
    for place in elsewhere:
        if os.access(place / PROGRAM, os.X_OK):
            return place / PROGRAM
    looked = " nor in ".join(map(str, elsewhere))
    raise MpsError(f"MPS: no {PROGRAM} on the PATH nor in {looked}")


class Control:
    """Speaks to one daemon. Any thread may; their commands never overlap."""

    def __init__(self, program: Path, variables: Mapping[str, str], timeouts: MpsTimeouts) -> None:
        """Say which; nothing is run yet.

        Args:
            program: The control program.
            variables: Which daemon: the environment of each command, beside the caller's.
            timeouts: How long is waited.
        """
        self._program = program
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        self._environment = kept | dict(variables)
        self._timeouts = timeouts
        self._turn = threading.Lock()
        self._stuck: list[subprocess.Popen[bytes]] = []
        self.failures = 0
        """Commands in a row that a daemon in order would have answered."""

    def start(self, variables: Mapping[str, str]) -> None:
        """Start a daemon, which stays behind.

        Args:
            variables: What it has in its environment, beside what each command has.

        Raises:
            MpsError: If it does not start, or not in time.
        """
        with self._own_turn():
            self.failures = 0
            self._run(["-d"], "", self._environment | dict(variables), self._timeouts.start)

    def ask(self, command: str, *, may_refuse: bool = False) -> str:
        """Say one command and return the answer.

        Args:
            command: One line.
            may_refuse: To refuse this one is no sign that the daemon is out of order.

        Raises:
            MpsTimeoutError: If no answer comes in time, or the turn of this command does not.
            MpsRefusedError: If the daemon says no.
            MpsError: If the program cannot be run.
            ValueError: If it is not one line.
        """
        return self._ask(command, str, may_refuse=may_refuse)

    def numbers(self, command: str, *, may_refuse: bool = False) -> list[int]:
        """Say a command that is answered by process numbers, each on its line.

        Raises:
            MpsTimeoutError: If no answer comes in time.
            MpsRefusedError: If something else comes.
            MpsError: If the program cannot be run.
        """

        def read(answer: str) -> list[int]:
            words = answer.split()
            if all(word.isascii() and word.isdigit() for word in words):
                return [int(word) for word in words]
            raise MpsRefusedError(
                f"MPS: {command!r} is answered by {_short(answer)!r}, not by process numbers"
            )

        return self._ask(command, read, may_refuse=may_refuse)

    def _ask(self, command: str, read: Callable[[str], _T], *, may_refuse: bool) -> _T:
        if not command.strip() or "\n" in command:
            raise ValueError(f"{command!r} is not one control command")
        with self._own_turn():
            try:
                said = read(
                    self._run([], command + "\n", self._environment, self._timeouts.command)
                )
            except MpsRefusedError:
                self.failures += not may_refuse
                raise
            except MpsTimeoutError:
                self.failures += 1
                raise
            self.failures = 0
            return said

    @contextlib.contextmanager
    def _own_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=self._timeouts.start + self._timeouts.command):
            raise MpsTimeoutError("MPS: other control commands leave this one no turn")
        try:
            yield
        finally:
            self._turn.release()

    def _run(
        self, arguments: Sequence[str], said: str, environment: Mapping[str, str], seconds: float
    ) -> str:
        asked = said.strip() or " ".join((PROGRAM, *arguments))
        self._stuck = [process for process in self._stuck if process.poll() is None]
        # Files, not pipes: a daemon would hold a pipe open for as long as it lives.
        with TemporaryFile() as question, TemporaryFile() as answer:
            question.write(said.encode())
            question.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603  # the driver's own program
                    [self._program, *arguments],
                    stdin=question,
                    stdout=answer,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise MpsError(f"MPS: {self._program} cannot be run: {error.strerror}") from error
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise MpsTimeoutError(
                    f"MPS: {asked!r} was not answered within {seconds:g} s{self._kill(process)}"
                ) from None
            answer.seek(0)
            text = answer.read(_ANSWER_BYTES).decode(errors="replace").strip()
        if code != 0:
            raise MpsRefusedError(f"MPS: {asked!r}: {_short(text) or f'exit code {code}'}")
        return text

    def _kill(self, process: subprocess.Popen[bytes]) -> str:
        """End a program and what it has started in its session; what there is to say of it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not buried yet: the number is still its own
        try:
            process.wait(_KILLED_SECONDS)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)
            return f"; its program (pid {process.pid}) cannot even be killed"
        return ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
