"""The sockets that the node answers on."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import IO

from treadle.errors import StartError
from treadle.lockfile import HeldError, hold
from treadle.node.group import make_entrance
from treadle.node.paths import make_private


class Listeners:
    """The TCP port and the local socket, opened before anything else is started.

    Raises:
        StartError: If the port is in use or not allowed, or another node holds the socket.
    """

    def __init__(self, host: str, port: int, path: Path, group: int | None = None) -> None:
        """Open both.

        Args:
            host: To listen on.
            port: The same; 0 for a free one.
            path: Of the local socket.
            group: May use the local socket, beside this user and root.
        """
        self._lock = claim_socket(path, group)
        self._path = path
        tcp = _open_tcp(host, port)
        try:
            local = _open_local(path, group)
        except StartError:
            tcp.close()
            raise
        self.sockets = [tcp, local]
        self.port: int = tcp.getsockname()[1]

    def close(self) -> None:
        """Remove the local socket and let another node start."""
        for opened in self.sockets:
            opened.close()
        self._path.unlink(missing_ok=True)
        self._lock.close()


def claim_socket(path: Path, group: int | None = None) -> IO[str]:
    """Make sure that ``path`` is free for a socket of this node's, and stays so.

    One node a socket: the lock falls with the process, so a stale one cannot be left.

    Raises:
        StartError: If another node holds it, or something else is there.
    """
    if group is None:
        make_private(path.parent)
    else:
        make_entrance(path.parent, group)
    if path.exists() and not path.is_socket():
        raise StartError(f"{path} is there and is no socket; choose another path for it")
    lock_path = path.with_name(path.name + ".lock")
    try:
        return hold(lock_path)
    except OSError as error:
        raise StartError(f"cannot open {lock_path}: {error.strerror}") from error
    except HeldError as error:
        raise StartError(
            f"another node (pid {error.holder}) already runs on {path}; stop it with treadle down, "
            "or set TREADLE_SOCKET for a second one"
        ) from None


def _open_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, proto)
    except OSError as error:
        raise StartError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise StartError(_bind_problem(error, host, port)) from error
    return opened


def _bind_problem(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {host} is in use by another program; choose another with "
                "http.port, TREADLE_HTTP_PORT or --port"
            )
        case errno.EACCES:
            return f"no permission to listen on port {port}; ports from 1024 need none"
        case _:
            return f"cannot listen on {host}:{port}: {error.strerror}"


def _open_local(path: Path, group: int | None) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)  # of a node that was killed: we hold its lock
        opened.bind(str(path))
        if group is not None:
            os.chown(path, -1, group)
        path.chmod(0o600 if group is None else 0o660)
        opened.listen(64)
    except OSError as error:
        opened.close()
        raise StartError(f"cannot open the local socket {path}: {error.strerror}") from error
    return opened
