"""The parent's end of a helper gives back what it took."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from treadle.monitor.directory import Setup
from treadle.monitor.helper import Helper


def test_a_helper_that_cannot_be_started_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each try would take one of the few descriptors that are left."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", none_left)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(OSError, match="Too many open files"):
            Helper(Setup(-1, -1, "nothing:here", "/nowhere"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
