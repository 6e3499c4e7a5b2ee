"""Who used the processor during a measurement: generator, node, or somebody else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from treadle.bench.results import CpuUse

_PROC = Path("/proc")
_BUSY = (1, 2, 3, 6, 7)
"""Fields of ``/proc/stat``: user, nice, system, interrupts. Not idle, and not stolen by a host."""
_USER, _SYSTEM = 11, 12
"""Fields of ``/proc/PID/stat``, counted after the program's name."""


class CpuMeter:
    """Counts from when it is made."""

    def __init__(self, node_pids: Iterable[int], proc: Path = _PROC) -> None:
        self._proc = proc
        self._pids = frozenset(node_pids)
        self._started = time.monotonic()
        self._before = self._read()

    def use(self) -> CpuUse:
        """Cores used on average until now."""
        seconds = time.monotonic() - self._started
        own, node, all_together = (
            (now - before) / seconds for now, before in zip(self._read(), self._before, strict=True)
        )
        return CpuUse(
            generator_cores=own, node_cores=node, other_cores=max(0.0, all_together - own - node)
        )

    def _read(self) -> tuple[float, float, float]:
        """Seconds used by this process, by the node and by everybody, since they began."""
        tick = os.sysconf("SC_CLK_TCK")
        node = sum(_ticks_of(self._proc / str(pid) / "stat") for pid in self._pids)
        fields = (self._proc / "stat").read_text().splitlines()[0].split()
        busy = sum(int(fields[index]) for index in _BUSY)
        return time.process_time(), node / tick, busy / tick


def pids_of(status: Any) -> list[int]:
    """The node's process and its workers', by what it says of itself."""
    return [status["pid"], *(pid for model in status["models"] for pid in model["pids"])]


def _ticks_of(path: Path) -> int:
    try:
        fields = path.read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return int(fields[_USER]) + int(fields[_SYSTEM])
