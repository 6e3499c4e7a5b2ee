"""Programs under test: started under the gate, told what to do a line at a time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.turnstile import Member, Turnstile

HANG_SECONDS = 20.0
"""No answer in this long is a hang. Nothing here takes more than a few seconds."""


class HangError(AssertionError):
    """Something did not come in a generous time."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Whom a program runs as. Only root can start one as somebody else."""

    user: int
    group: int
    groups: tuple[int, ...] = ()


class Program:
    """A running program that answers a line for each line it is sent."""

    def __init__(self, command: list[str], env: dict[str, str], login: Login | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            env=env,
            user=login.user if login else None,
            group=login.group if login else None,
            extra_groups=login.groups if login else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._buffer = b""
        self.errors = ""
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._collect()

    def _collect(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        if self._process.stderr is not None and not self._process.stderr.closed:
            self.errors += self._process.stderr.read().decode()
            self._process.stderr.close()
        self._process.wait(timeout=HANG_SECONDS)

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def answered(self, seconds: float) -> bool:
        """Whether an answer comes within this time."""
        assert self._process.stdout is not None
        if b"\n" in self._buffer:
            return True
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def read(self) -> str:
        assert self._process.stdout is not None
        end = time.monotonic() + HANG_SECONDS
        while b"\n" not in self._buffer:
            if not select.select([self._process.stdout], [], [], end - time.monotonic())[0]:
                raise HangError(f"no answer in {HANG_SECONDS} s")
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                self._collect()
                raise EOFError(f"exit {self._process.returncode}: {self.errors}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.read()

    def ask_fields(self, line: str) -> dict[str, str]:
        """Ask, and read ``name=value`` words from the answer."""
        words = (word.partition("=") for word in self.ask(line).split())
        return {name: value for name, equals, value in words if equals}

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=HANG_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Close its input, wait for it, and return its exit status and what it complained of."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise HangError("the program did not end") from error
        self._collect()
        return code, self.errors


@dataclass(frozen=True, kw_only=True)
class Built:
    """What the tests have compiled."""

    folder: Path
    library: Path
    program: Path
    program_plt: Path


@dataclass(kw_only=True)
class World:
    """A turnstile folder, and programs beside it."""

    built: Built
    folder: Path
    programs: list[Program] = field(default_factory=list)

    def environment(self, **more: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if "TREADLE" not in name}
        plain |= {
            "LD_LIBRARY_PATH": str(self.built.folder),
            "LD_PRELOAD": str(self.built.library),
            "TREADLE_TURNSTILE": str(self.folder),
        }
        return plain | more

    def start(self, way: str = "dlsym", **environment: str) -> Program:
        """Start the program under the gate and wait until it is ready.

        Args:
            way: How it gets driver functions.
            environment: More variables. By default it is background work.
        """
        binary = self.built.program_plt if way == "plt" else self.built.program
        program = Program([str(binary), way], self.environment(**environment))
        self.programs.append(program)
        assert program.read().startswith("ready")
        return program

    def run_environment(self, **more: str) -> dict[str, str]:
        """For ``treadle run``, which sets the gate's variables itself."""
        environment = self.environment(
            TREADLE_TURNSTILE_DIR=str(self.folder),
            TREADLE_GATE_LIBRARY=str(self.built.library),
            PYTHONPATH=":".join(sys.path),
        )
        del environment["LD_PRELOAD"], environment["TREADLE_TURNSTILE"]
        return environment | more

    def page(self, device: int = 0, base: int = 0) -> Turnstile:
        return Turnstile.open(self.folder, uuid_of(device, base))


def uuid_of(device: int = 0, base: int = 0) -> str:
    """The UUID that the stand-in gives to a device."""
    return f"GPU-{base:02x}000000-0000-0000-0000-0000000000{device:02x}"


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that must come, without saying how fast."""
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise HangError(f"still not: {what}")
        time.sleep(0.001)


def only_member(page: Turnstile) -> Member:
    (member,) = page.snapshot().members
    return member


def by_pid(page: Turnstile, program: Program) -> Member:
    (member,) = (m for m in page.snapshot().members if m.pid == program.pid)
    return member
