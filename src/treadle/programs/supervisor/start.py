"""How a process becomes the job, and what came of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from typing import Any

NOT_FOUND, NOT_EXECUTABLE = 127, 126
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Descendants whose parent dies become our children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become_job(task: dict[str, Any], output: int, failed: int, parent: int) -> None:
    """In the child: become the program, or say why not. Does not return."""
    code = NOT_EXECUTABLE
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        # All: a node that a script has started in its background ignores SIGINT and SIGQUIT.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError):  # the C library keeps some for itself
                signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        if task["cgroup"]:
            with open(task["cgroup"] + "/cgroup.procs", "w") as group:
                group.write("0")
        for name, limit in task["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        if task["nice"]:
            os.nice(task["nice"])
        if task["user"] is not None:
            os.fchown(output, task["user"]["uid"], -1)  # that it can open /dev/stdout, too
            os.setgroups(task["user"]["groups"])
            os.setgid(task["user"]["gid"])
            os.setuid(task["user"]["uid"])
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # setuid has cleared it
        os.umask(task["umask"])
        try:
            os.chdir(task["cwd"])
        except OSError as error:
            raise OSError(error.errno, f"cannot enter {task['cwd']}: {error.strerror}") from None
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if task["progress"]:
            _offer_progress(task)
        os.execvpe(task["command"][0], task["command"], task["env"])  # noqa: S606
    except FileNotFoundError as error:
        found = str(error.strerror)
        if not found.startswith("cannot enter"):
            found, code = f"{task['command'][0]}: command not found", NOT_FOUND
        os.write(failed, f"{code} {found}".encode())
    except Exception as error:
        text = getattr(error, "strerror", None) or str(error)
        if not text.startswith("cannot enter"):
            text = f"{task['command'][0]}: {text}"
        os.write(failed, f"{code} {text}".encode())
    finally:
        os._exit(code)


def _offer_progress(task: dict[str, Any]) -> None:
    """Name the file to report to; one that an older process of our number has left is taken away.

    ``treadle.progress`` says how it is named.
    """
    with contextlib.suppress(OSError):
        file = f"{task['progress']}/{os.getpid()}-{os.stat('/proc/self/ns/pid').st_ino}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
        task["env"]["TREADLE_PROGRESS"] = file


def descendants(pid: int) -> list[int]:
    """Children of a process, theirs and so on."""
    found, open_ = [], [pid]
    while open_:
        for child in _children(open_.pop()):
            found.append(child)
            open_.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Of a process, whichever of its threads made them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found
