"""The CPU as a device: what this process may really use of it."""

from __future__ import annotations

import math
import os
from pathlib import Path

from treadle.types import Device

_CGROUP_ROOT = Path("/sys/fs/cgroup")


def cpu_device(cgroup_root: Path = _CGROUP_ROOT) -> Device:
    """Describe the CPU with the cores and memory that this process is allowed.

    A container often sees all cores of its host but may use only some: the affinity mask and
    the cgroup's quota (version 2) count, whichever is smaller.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota_cores(cgroup_root / "cpu.max")
    if quota is not None:
        cores = max(1, min(cores, math.ceil(quota)))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read_number(cgroup_root / "memory.max")
    return Device(
        name="cpu",
        kind="cpu",
        cores=cores,
        memory_bytes=memory if limit is None else min(memory, limit),
    )


def _quota_cores(path: Path) -> float | None:
    """Cores granted by a ``cpu.max`` file ("QUOTA PERIOD" in microseconds), None if unlimited."""
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max": no limit
        return None


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
