"""Memory that the node and one worker share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

_PAGE = mmap.PAGESIZE
_FIRST_BYTES = 1 << 20
_ALIGNMENT = 64


def aligned(offset: int) -> int:
    """The first place for a tensor at or behind ``offset``: the start of a cache line."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class Progress:
    """Which batches a worker is at, where the node can read it after the worker has died.

    There is a place for each that may run at one time, as many as the node has made.
    """

    _NBYTES = 8

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._batches = memoryview(mmap.mmap(fd, os.fstat(fd).st_size)).cast("Q")

    @classmethod
    def create(cls, places: int = 1) -> Progress:
        fd = os.memfd_create("treadle-progress", os.MFD_CLOEXEC)
        os.ftruncate(fd, places * cls._NBYTES)
        return cls(fd)

    def begin(self, batch: int, place: int = 0) -> None:
        """Say that the batch of this number runs from now on, and none before it in its place."""
        self._batches[place] = batch

    @property
    def batches(self) -> frozenset[int]:
        """The batches that began last, one for each place; 0 where none has begun."""
        return frozenset(self._batches)

    def close(self) -> None:
        os.close(self.fd)


class Arena:
    """A region that its writer grows and its reader follows.

    It has no name in any file system: it lives as an open file that the worker inherits, and
    vanishes with its last holder, however that one ends.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self.view = memoryview(self._map)
        self.on_map: Callable[[Arena], None] | None = None
        """Told when the region is mapped anew."""

    @classmethod
    def create(cls, name: str) -> Arena:
        fd = os.memfd_create(f"treadle-{name}", os.MFD_CLOEXEC)
        os.ftruncate(fd, _FIRST_BYTES)
        return cls(fd)

    def reserve(self, nbytes: int) -> memoryview:
        """Make room for ``nbytes``, growing by doubling, and return the whole region.

        What was in it stays. Views handed out before stay valid, over the same memory.
        """
        if nbytes > len(self.view):
            size = max(nbytes, 2 * len(self.view))
            os.ftruncate(self.fd, -(-size // _PAGE) * _PAGE)
        return self.follow(nbytes)

    def follow(self, nbytes: int) -> memoryview:
        """The region, at least ``nbytes`` long, which its writer has reserved."""
        if nbytes > len(self.view):
            # The old mapping is let go, not closed: arrays may still look at it. It lasts until
            # whoever is told has let go of it, too.
            before = self._map
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
            self.view = memoryview(self._map)
            if self.on_map is not None:
                self.on_map(self)
            del before
        return self.view

    def close(self) -> None:
        os.close(self.fd)
