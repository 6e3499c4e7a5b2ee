"""Shared memory that a GPU copies from and to by itself."""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections.abc import Iterable
from typing import Any

from treadle.serve.worker.arena import Arena

_log = logging.getLogger("treadle.worker")


class Pinning:
    """Keeps a worker's arenas pinned, wherever they are mapped.

    So inputs go to the device, and outputs come from it, without a copy in between, beside what
    else runs. Where the system does not allow that, copies are only slower.
    """

    def __init__(self, arenas: Iterable[Arena]) -> None:
        self._runtime: Any = importlib.import_module("torch").cuda.cudart()
        self._places: dict[Arena, tuple[int, int]] = {}
        self.reason = ""
        """Why something is not pinned; empty if all is."""
        for arena in arenas:
            arena.on_map = self._pin
            self._pin(arena)

    @property
    def nbytes(self) -> int:
        """How much is pinned."""
        return sum(nbytes for _, nbytes in self._places.values())

    def _pin(self, arena: Arena) -> None:
        # It is mapped anew while no batch holds its slot: nothing is copied there now.
        if (before := self._places.pop(arena, None)) is not None:
            self._runtime.cudaHostUnregister(before[0])
        address = ctypes.addressof(ctypes.c_char.from_buffer(arena.view))
        status = self._runtime.cudaHostRegister(address, len(arena.view), 0)
        if int(status) == 0:
            self._places[arena] = address, len(arena.view)
        elif not self.reason:
            self.reason = f"memory shared with the node is not pinned: {status}"
            _log.warning("%s", self.reason)
