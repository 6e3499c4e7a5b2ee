"""Where the pages of a machine's GPUs lie."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from treadle.turnstile.page import TurnstileError

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,62}")


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The turnstile folder: ``TREADLE_TURNSTILE_DIR``, or one of this user's own."""
    if given := environ.get("TREADLE_TURNSTILE_DIR"):
        return Path(given)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "treadle" / "turnstile"
    return Path(f"/dev/shm/treadle-{os.geteuid()}")  # noqa: S108 - shared memory is the point


def check_folder(folder: Path) -> None:
    """See that nobody but this user, root or its group can put a file into a page's place.

    Raises:
        TurnstileError: If somebody else can, or nobody can tell; the text says which.
    """
    try:
        about = folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise TurnstileError(f"cannot look at {folder}: {error.strerror}") from error
    if about.st_mode & 0o002 and not about.st_mode & 0o1000:
        raise TurnstileError(f"everyone may write {folder}: no place for a turnstile")
    me = os.geteuid()
    mine = me == 0 or about.st_uid in (0, me)
    ours = about.st_mode & 0o020 and about.st_gid in (os.getegid(), *os.getgroups())
    if not (mine or ours):
        raise TurnstileError(f"{folder} is user {about.st_uid}'s alone: no place for a turnstile")


def open_page(path: Path, flags: int) -> int:
    """Open a page's file; a link or anything but a file that somebody has put there stays shut.

    Args:
        path: As ``page_file`` tells.
        flags: ``os.O_RDONLY`` or ``os.O_RDWR``.

    Raises:
        OSError: If it cannot be opened.
    """
    found = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "it is no file")
    return found


def page_file(folder: Path, uuid: str) -> Path:
    """The file of one GPU's page.

    Raises:
        TurnstileError: If ``uuid`` is not a name that a GPU can have, or the folder is somebody
            else's: who can write it could put any file in the page's place.
    """
    if not _NAME.fullmatch(uuid):
        raise TurnstileError(f"{uuid!r} is not the UUID of a GPU")
    check_folder(folder)
    return folder / uuid
