"""Forks supervisors for one node: what they need is read once, and most of their memory is shared.

Starting an interpreter and reading modules would be most of the work of a short job. Requests come
on standard input, a socket that keeps messages apart: each is an attempt's folder, each answer the
number of an error, or 0. It ends with its node; supervisors do not.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import socket
import sys

from .program import LOCK
from .program import main as supervise

_LONGEST_PATH = 8192
_REAP_MILLISECONDS = 1000


def main() -> int:
    """Serve one node, until it is gone."""
    gc.freeze()  # nobody writes to what is shared, not even to count references to garbage
    door = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(door, select.POLLIN)
    while True:
        if poll.poll(_REAP_MILLISECONDS):
            folder = door.recv(_LONGEST_PATH)
            if not folder:
                return 0
            door.send(b"%d" % _spawn(os.fsdecode(folder)))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _spawn(folder: str) -> int:
    """Fork a supervisor; returns the number of an error, or 0.

    The lock is held before the answer is given: whoever finds it free then knows that there is no
    supervisor any more.
    """
    try:
        lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fork() == 0:
                _become_supervisor(folder, lock)
        finally:
            os.close(lock)
    except OSError as error:
        return error.errno or 1
    return 0


def _become_supervisor(folder: str, lock: int) -> None:
    """In the child. Does not return."""
    code = 1
    try:
        os.setsid()
        null = log = os.open(os.devnull, os.O_RDWR)
        with contextlib.suppress(OSError):  # a full disk is told in another way
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            log = os.open(f"{folder}/supervisor.log", flags, 0o600)
        for descriptor, opened in enumerate((null, log, log)):
            os.dup2(opened, descriptor)
        os.closerange(3, lock)
        os.closerange(lock + 1, max(null, log) + 1)
        code = supervise(folder, lock)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)
