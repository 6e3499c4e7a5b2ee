"""Where the node keeps its files, by the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from treadle.errors import StartError

_LONGEST_SOCKET_PATH = 107


def state_folder() -> Path:
    """Folder for logs and what outlives a boot: ``TREADLE_STATE_DIR`` or the XDG state home."""
    return _folder("TREADLE_STATE_DIR", "XDG_STATE_HOME", Path.home() / ".local" / "state")


def runtime_folder() -> Path:
    """Folder for the socket: ``TREADLE_RUNTIME_DIR``, the XDG runtime folder, or the state folder.

    The runtime folder is missing in containers and on sessions without a login manager.
    """
    if os.environ.get("TREADLE_RUNTIME_DIR") or os.environ.get("XDG_RUNTIME_DIR"):
        return _folder("TREADLE_RUNTIME_DIR", "XDG_RUNTIME_DIR", Path())
    return state_folder()


def socket_path() -> Path:
    """The node's local socket: ``TREADLE_SOCKET`` or ``node.sock`` in the runtime folder.

    Raises:
        StartError: If the path is longer than the system allows for a socket.
    """
    given = os.environ.get("TREADLE_SOCKET")
    path = Path(given) if given else runtime_folder() / "node.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise StartError(
            f"the socket path {path} is too long for a Unix socket ({_LONGEST_SOCKET_PATH} bytes "
            "at most); set TREADLE_SOCKET to a shorter one"
        )
    return path


def make_private(folder: Path) -> Path:
    """Create a folder that only its owner can enter.

    Raises:
        StartError: If it cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"cannot create the folder {folder}: {error.strerror}") from error
    return folder


def _folder(own_variable: str, xdg_variable: str, default: Path) -> Path:
    if own := os.environ.get(own_variable):
        return Path(own)
    base = os.environ.get(xdg_variable)
    return (Path(base) if base else default) / "treadle"
