"""What a process needs in its environment to be a client of a daemon, within its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from treadle.devices.mps.home import LOG_VARIABLE, PIPE_VARIABLE
from treadle.types import Priority

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """What one client may have. It is fixed when the client starts."""

    priority: Priority
    sm_fraction: float | None = None
    """Of the SMs; None for all. Whole percents are what MPS takes: it is rounded to one."""
    memory_bytes: int | None = None
    """Of each GPU, with what the driver itself takes for the client; None for no limit. Whole MiB
    are what MPS takes: it is rounded down."""

    def __post_init__(self) -> None:
        fraction, memory = self.sm_fraction, self.memory_bytes
        if fraction is not None and not 0.01 <= fraction <= 1:  # NaN is neither
            raise ValueError(f"sm_fraction is {fraction}; allowed: 0.01 to 1")
        if memory is not None and (not math.isfinite(memory) or memory < _MIB):
            raise ValueError(f"memory_bytes is {memory}; allowed: {_MIB} (1 MiB) and above")


def client_environment(
    pipe_directory: Path, log_directory: Path, limits: ClientLimits, gpus: Sequence[str] = ()
) -> dict[str, str]:
    """The variables to set for a client, beside those it has.

    Critical and normal work have the client priority of all; background work the one below. MPS
    knows two only.

    Args:
        pipe_directory: The daemon's.
        log_directory: The daemon's.
        limits: The client's.
        gpus: UUIDs of the daemon's GPUs; none for all that it sees, of which there is one then.
    """
    variables = {
        PIPE_VARIABLE: str(pipe_directory),
        LOG_VARIABLE: str(log_directory),
        "CUDA_MPS_CLIENT_PRIORITY": "1" if limits.priority is Priority.BACKGROUND else "0",
    }
    if gpus:
        # By UUID: a daemon numbers its GPUs anew, so that a number would mean another one.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if limits.sm_fraction is not None:
        percent = round(limits.sm_fraction * 100)
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
    if limits.memory_bytes is not None:
        limit = f"{int(limits.memory_bytes) // _MIB}M"
        devices = range(max(1, len(gpus)))  # numbered as the client sees them
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(f"{n}={limit}" for n in devices)
    return variables
