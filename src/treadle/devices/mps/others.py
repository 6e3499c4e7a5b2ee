"""An MPS daemon that somebody else started: found and told of, never spoken to, never ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from treadle.devices.mps.home import PID_FILE, PIPE_VARIABLE, user_name
from treadle.devices.mps.processes import identify


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDaemon:
    """Whose pipes lie where a CUDA program would look for them."""

    pipe_directory: Path
    uid: int | None
    """Whose it is; None if that cannot be seen."""
    pid: int | None
    """None if that cannot be seen, or nobody with that number runs here."""
    reason: str
    """What is known of it, in words."""


def usual_pipe_directory(environment: Callable[[str], str | None], root: Path = Path("/")) -> Path:
    """Where a CUDA program looks for a daemon if nobody tells it more."""
    folder = environment(PIPE_VARIABLE)
    return Path(folder) if folder else root / "tmp/nvidia-mps"


def other_daemon(pipe_directory: Path) -> OtherDaemon | None:
    """Whether there is a daemon's control pipe, and whose.

    It is looked at only. None also where its directory is closed to this user: a CUDA program of
    this user does not find it either.
    """
    pipe = pipe_directory / "control"
    try:
        uid = pipe.stat().st_uid
    except OSError:
        return None
    whose, pid = user_name(uid), None
    try:
        written = int((pipe_directory / PID_FILE).read_text())
    except (OSError, ValueError):
        told = "its process number cannot be read"
    else:
        pid = written if identify(written) else None
        told = f"pid {written}" if pid else f"its process, {written}, does not run here"
    reason = f"there is a daemon's control pipe: {pipe}, of {whose}, {told}"
    return OtherDaemon(pipe_directory=pipe_directory, uid=uid, pid=pid, reason=reason)
