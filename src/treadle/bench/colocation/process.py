"""A role's process as the harness sees it: every wait is bounded, every end is certain."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.errors import TreadleError

_TAIL_LINES = 25
_END_SECONDS = 5.0


class RoleError(TreadleError):
    """A role died, hung or said that it failed. The text has the end of its standard error."""


class RoleProcess:
    """Speaks the control protocol with one role."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start ``command`` in a process group of its own; ``environment`` is all it gets."""
        self.name = name
        self.facts: dict[str, Any] = {}
        """What it said when it became ready."""
        self._events: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=_TAIL_LINES)
        self._process = subprocess.Popen(  # noqa: S603  # our own roles
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_events, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def tell(self, op: str, **fields: Any) -> None:
        """Send one order.

        Raises:
            RoleError: If it has died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._failure("died") from error

    def expect(self, event: str, timeout_seconds: float) -> Mapping[str, Any]:
        """Wait for one message.

        Raises:
            RoleError: If another one comes, none comes in time, or the process ends.
        """
        try:
            message = self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            raise self._failure(f"said no {event!r} in {timeout_seconds:.0f} s") from None
        if message is None:
            raise self._failure(f"died before {event!r}")
        if message["event"] == "error":
            raise self._failure(str(message["reason"]))
        if message["event"] != event:
            raise self._failure(f"said {message['event']!r} and not {event!r}")
        return message

    def watch(self, seconds: float) -> None:
        """Let time pass in which it has nothing to say.

        Raises:
            RoleError: If it says anything, or ends.
        """
        try:
            message = self._events.get(timeout=seconds)
        except queue.Empty:
            return
        if message is None:
            raise self._failure("died while it was measured")
        raise self._failure(str(message.get("reason", f"said {message['event']!r} unasked")))

    def close(self) -> None:
        """End it and everything that it started: first with a word, then by force."""
        with contextlib.suppress(OSError, ValueError, RoleError):
            self.tell("end")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End its process group now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)  # one stuck in the driver cannot be waited for
        for reader in self._readers:
            reader.join(_END_SECONDS)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not any(reader.is_alive() for reader in self._readers):
                with contextlib.suppress(OSError):
                    stream.close()

    def _failure(self, what: str) -> RoleError:
        if not self._readers[0].is_alive():  # its output has ended, so it is about to
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if self._process.poll() is not None:
            self._readers[1].join(1.0)
        code = self._process.returncode
        ended = "" if code is None else f" (exit code {code})"
        tail = "\n".join(self._errors)
        return RoleError(f"{self.name} {what}{ended}" + (f"\n{tail}" if tail else ""))

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._events.put(json.loads(line))
            except ValueError:
                self._errors.append(f"not a message: {line[:200]!r}")
        self._events.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())
