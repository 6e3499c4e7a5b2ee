"""How far a task has come, as it says itself: ``treadle.report(samples=…)``.

``treadle run`` names a small file in ``TREADLE_PROGRESS``. A program without one reports to nobody
and loses nothing by it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TREADLE_PROGRESS"
_CONTENT = struct.Struct("<8sdQdd")
_MAGIC = b"TRDLPRG2"

_file: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a task has reported so far."""

    pid: int
    samples: float
    reports: int
    last_at: float
    """Monotonic seconds."""
    loss: float | None = None
    """As it was reported last."""


def report(*, samples: float, loss: float | None = None) -> None:
    """Say that so many samples were done since the last report.

    A sample is what the task counts its work in: an image, a token, a step. Processes of one task
    add up. Nothing is raised if nobody listens, or nobody can.

    Args:
        samples: At least 0.
        loss: Where training is by now, for people to read; one that is no number counts as none.

    Raises:
        ValueError: If ``samples`` is negative or not a number.
    """
    if not 0 <= samples < math.inf:
        raise ValueError(f"samples is {samples}; allowed: 0 and above")
    path = os.environ.get(VARIABLE)
    if not path:
        return
    with contextlib.suppress(OSError):  # a full disk must not end a training
        _add(_open(path), samples, math.nan if loss is None else float(loss))


def _open(path: str) -> int:
    global _file
    if _file is None or _file[0] != path:
        # It stays open: descriptors are not inherited by programs, and forks share the lock's file.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = os.open(path, flags, 0o640)
        if os.fstat(opened).st_nlink != 1:  # others may put names there: it is another file, too
            os.close(opened)
            raise OSError(errno.EMLINK, "it has another name")
        _file = (path, opened)
    return _file[1]


def _add(descriptor: int, samples: float, loss: float) -> None:
    fcntl.lockf(descriptor, fcntl.LOCK_EX)  # of the process: children of a task report, too
    try:
        total, reports = 0.0, 0
        content = os.pread(descriptor, _CONTENT.size, 0)
        if len(content) == _CONTENT.size:
            _, total, reports, _, before = _CONTENT.unpack(content)
            loss = before if math.isnan(loss) else loss
        new = _CONTENT.pack(_MAGIC, total + samples, reports + 1, time.monotonic(), loss)
        os.pwrite(descriptor, new, 0)
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def folder_of(turnstiles: Path) -> Path:
    """Where the tasks of a turnstile folder report."""
    return turnstiles / ".progress"


def prepare(turnstiles: Path, pid: int) -> Path:
    """The file for a program that will be process ``pid``, without what an older one has left.

    Raises:
        OSError: If there is no place for it.
    """
    file = make_folder(turnstiles) / f"{pid}-{_namespace()}"
    file.unlink(missing_ok=True)
    return file


def make_folder(turnstiles: Path) -> Path:
    """The folder for reports, made if it is not there.

    Raises:
        OSError: If it cannot be.
    """
    folder = folder_of(turnstiles)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        about = turnstiles.stat()
        if about.st_mode & 0o020:  # a group shares it: each writes files of its own there
            os.chown(folder, -1, about.st_gid)
            folder.chmod(0o3770)
    return folder


def _namespace() -> int:
    """What tells this pid namespace from others: a folder may be shared with containers."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def read_all(turnstiles: Path) -> dict[int, Progress]:
    """Every task of this pid namespace that lives and has reported, by pid.

    Files of the dead are taken away; of other namespaces nobody here can tell who has died.
    """
    found, ours = {}, str(_namespace())
    try:
        files = list(folder_of(turnstiles).iterdir())
    except OSError:
        return {}
    for file in files:
        number, _, namespace = file.name.partition("-")
        if not number.isdigit() or namespace != ours:
            continue
        pid = int(number)
        with contextlib.suppress(OSError):
            if not Path(f"/proc/{pid}").exists():
                file.unlink()
                continue
            if (progress := _read(file, pid)) is not None:
                found[pid] = progress
    return found


def read_one(turnstiles: Path, pid: int) -> Progress | None:
    """What one task has reported; None if it has not."""
    with contextlib.suppress(OSError):
        return _read(folder_of(turnstiles) / f"{pid}-{_namespace()}", pid)
    return None


def _read(file: Path, pid: int) -> Progress | None:
    # Tasks of other users write there, too: what is no file, or goes elsewhere, is none of theirs.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, _CONTENT.size + 1)
    finally:
        os.close(descriptor)
    if len(content) != _CONTENT.size or not content.startswith(_MAGIC):
        return None
    _, samples, reports, last_at, loss = _CONTENT.unpack(content)
    return Progress(
        pid=pid,
        samples=samples,
        reports=reports,
        last_at=last_at,
        loss=None if math.isnan(loss) else loss,
    )
