"""A node that a group of users shares: its socket, and the folder of the turnstiles."""

from __future__ import annotations

import contextlib
import grp
import os
import stat
from pathlib import Path

from treadle.errors import StartError
from treadle.progress import folder_of, make_folder

_ENTRANCE, _SHARED = 0o750, 0o3770
"""Of the socket's folder; of the turnstiles', which is sticky: nobody replaces another's page."""


def find_group(name: str) -> int:
    """The number of a group, by its name or as it is.

    Raises:
        StartError: If there is no such group, or this user may give nothing to it.
    """
    try:
        number = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise StartError(f"node.group: there is no group {name!r} on this machine") from None
    if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
        raise StartError(
            f"node.group: this user is not in the group {name!r}; join it, or run the node as root"
        )
    return number


def make_entrance(folder: Path, group: int) -> None:
    """Make the socket's folder, if it is not there, and see that the group can come in.

    Raises:
        StartError: If it cannot, or if somebody could put another socket in place; says what to do.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
        os.chown(folder, -1, group)
        folder.chmod(_ENTRANCE)
    except FileExistsError:
        pass
    except OSError as error:
        raise StartError(f"cannot create the folder {folder}: {error.strerror}") from error
    folder = folder.resolve()
    for one in (folder, *folder.parents):
        about = one.stat()
        shared = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
        if shared or about.st_uid not in (0, os.geteuid()):
            raise StartError(
                f"node.group: others than this user and root may write {one}, and could put "
                "another socket in place; set TREADLE_SOCKET to a path elsewhere, such as "
                "/run/treadle/node.sock"
            )
        if not about.st_mode & (0o010 if about.st_gid == group else 0o001):
            raise StartError(
                f"node.group: the group {group} cannot enter {one}; set TREADLE_SOCKET to a path "
                f"that it can reach, such as /run/treadle/node.sock, or chgrp {group} {one} && "
                f"chmod g+x {one}"
            )


def share_turnstiles(folder: Path, group: int) -> None:
    """Make the folder of the turnstiles, and let the group write there.

    One that was this user's alone is opened to the group, with what lies there.

    Raises:
        StartError: If it is somebody else's, or another group's; says which.
    """
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _share(folder, opened, group)
        finally:
            os.close(opened)
    except OSError as error:
        raise StartError(f"node.group: cannot share {folder}: {error.strerror}") from error


def _share(folder: Path, opened: int, group: int) -> None:
    about = os.fstat(opened)
    if about.st_uid not in (0, os.geteuid()):
        raise StartError(f"node.group: the turnstile folder {folder} is user {about.st_uid}'s")
    if about.st_mode & 0o022:
        if about.st_gid != group or about.st_mode & 0o002:
            raise StartError(
                f"node.group: the turnstile folder {folder} is shared with others than the group "
                f"{group}; chgrp {group} {folder} && chmod 3770 {folder}, or set "
                "TREADLE_TURNSTILE_DIR to another"
            )
        if about.st_mode & _SHARED != _SHARED:
            os.fchmod(opened, _SHARED)
        make_folder(folder)
    else:
        # Nobody else could write it so far: whatever lies there is of this user or root.
        make_folder(folder)
        for name in os.listdir(opened):
            kind = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode
            if stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and name == folder_of(folder).name):
                os.chown(name, -1, group, dir_fd=opened, follow_symlinks=False)
                os.chmod(name, 0o660 if stat.S_ISREG(kind) else _SHARED, dir_fd=opened)
        os.fchown(opened, -1, group)
        os.fchmod(opened, _SHARED)
    reports = folder_of(folder).lstat()
    if not stat.S_ISDIR(reports.st_mode) or reports.st_uid not in (0, os.geteuid()):
        raise StartError(f"node.group: somebody else has made {folder_of(folder)}; remove it")
