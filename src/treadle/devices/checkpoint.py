"""CUDA's process checkpoint: a process whose CUDA calls wait until it is let go again.

The driver may hang, so each call is made by a process of its own, which is ended after a while.
Under MPS the driver refuses (801), and only who may trace a process may lock it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from typing import Any

from treadle.errors import TreadleError

_LOCK_MILLISECONDS = 2000
"""A lock waits for the work in flight, at most so long: then the process is as before."""
_MOST_SECONDS = 20.0
"""To load the driver takes a second or more where many GPUs are asleep."""
_RUNNING, _LOCKED = 0, 1
_NOT_READY = 600
_GATE = ("LD_PRELOAD", "TREADLE_TURNSTILE")


class CheckpointError(TreadleError):
    """A process could not be locked or let go; the text says why."""


class ProcessLocks:
    """Locks processes and lets them go. Its methods block: they are not for an event loop."""

    def lock(self, pid: int) -> None:
        """Let a process make no CUDA call any more: those that it makes wait.

        Work that it has launched goes on. The lock outlives whoever asked for it.

        Raises:
            CheckpointError: If it is not locked.
        """
        self._ask("lock", pid)

    def unlock(self, pid: int) -> None:
        """Let a process go on, if it is locked.

        Raises:
            CheckpointError: If nobody knows whether it does.
        """
        self._ask("unlock", pid)

    def _ask(self, what: str, pid: int) -> None:
        command = [sys.executable, "-m", "treadle.devices.checkpoint", what, str(pid)]
        environment = {n: v for n, v in os.environ.items() if n not in _GATE}
        try:
            done = subprocess.run(  # noqa: S603  # ourselves
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise CheckpointError(f"the driver has not answered for {_MOST_SECONDS:g} s") from None
        except OSError as error:
            raise CheckpointError(f"no process can be started: {error.strerror}") from error
        if done.returncode:
            lines = (done.stdout or done.stderr).strip().splitlines()
            raise CheckpointError(lines[-1] if lines else f"exit code {done.returncode}")


def _call(library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    try:
        call = library[function]
    except AttributeError:
        raise CheckpointError(f"the CUDA driver has no {function}") from None
    code = call(*arguments)
    if code == _NOT_READY:
        raise CheckpointError(f"its work in flight has not ended in {_LOCK_MILLISECONDS / 1e3:g} s")
    if code:
        raise CheckpointError(f"{function}: {_name(library, code)}")


def _name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    with contextlib.suppress(AttributeError):
        library.cuGetErrorName(code, ctypes.byref(text))
    return f"error {code}" + (f" ({text.value.decode()})" if text.value else "")


def act(what: str, pid: int) -> None:
    """Make the call itself; it may hang.

    Raises:
        CheckpointError: If the driver refuses, or there is none.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise CheckpointError("the CUDA driver's library (libcuda.so.1) is not here") from None
    _call(library, "cuInit", 0)
    state = ctypes.c_int()
    _call(library, "cuCheckpointProcessGetState", pid, ctypes.byref(state))
    # 64 bytes each: of a lock the first word says for how long to try, all else is reserved.
    arguments = (ctypes.c_uint * 16)()
    if what == "lock" and state.value == _RUNNING:
        arguments[0] = _LOCK_MILLISECONDS
        _call(library, "cuCheckpointProcessLock", pid, ctypes.byref(arguments))
    elif what == "unlock" and state.value == _LOCKED:
        _call(library, "cuCheckpointProcessUnlock", pid, ctypes.byref(arguments))


def main(what: str, pid: str) -> int:
    """Do what the parent wants; its complaint goes to the output."""
    try:
        act(what, int(pid))
    except CheckpointError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
