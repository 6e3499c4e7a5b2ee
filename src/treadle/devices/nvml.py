"""What the NVIDIA management library says of a GPU, where it is there to ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pynvml  # type: ignore[import-untyped]

from treadle.errors import TreadleError


class NVMLError(TreadleError):
    """The library is missing, or does not answer; the text says which."""


@dataclass(frozen=True, slots=True)
class GPUProcess:
    """A process that has a context on a GPU."""

    pid: int
    name: str
    memory_bytes: int | None
    """None where the driver does not tell."""


def compute_processes(uuid: str) -> list[GPUProcess]:
    """The processes on the GPU ``uuid`` that this process can see, ascending by pid.

    Those of other pid namespaces (other containers, or the host's) are left out: their numbers
    mean something else here.

    Raises:
        NVMLError: If they cannot be told.
    """
    _start()
    try:
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    except pynvml.NVMLError as error:
        raise NVMLError(f"cannot list the processes on {uuid}: {error}") from error
    return [
        GPUProcess(process.pid, name, process.usedGpuMemory)
        for process in sorted(found, key=lambda p: p.pid)
        if (name := _name_here(process.pid))
    ]


def _name_here(pid: int) -> str | None:
    """The name of a process, if it is one of this pid namespace and uses CUDA."""
    folder = Path("/proc") / str(pid)
    try:
        name = (folder / "comm").read_text(errors="replace").strip()
    except OSError:
        return None
    try:
        maps = (folder / "maps").read_text(errors="replace")
    except OSError:  # another user's: nothing speaks against it
        return name
    return name if "libcuda" in maps or "/dev/nvidia" in maps else None


def _start() -> None:
    """Load the library; it stays, since only the first time is slow."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NVMLError(f"the NVIDIA management library cannot be used: {error}") from error
