"""Who is on an NVIDIA GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.devices.device import DeviceError, DeviceGoneError, DeviceProcess
from treadle.devices.nvidia.library import NVML, MissingError, NothingError, load, number

_MPS_SERVER = "nvidia-cuda-mps"
"""The kernel keeps 15 characters of a name."""
_UNDER_MPS = "under MPS the driver does not tell the clients' work apart"
_UNDER_MIG = "with MIG on the driver does not count by process"
_NO_SAMPLE = "the driver has no sample of it since the last look"
_ELSEWHERE = "it is of another pid namespace: the driver's number {} means something else here"
_NO_MEMORY = "the driver does not tell its memory"


def compute_processes(uuid: str, nvml: NVML | None = None) -> list[DeviceProcess]:
    """The processes on the GPU ``uuid`` that this process can see, ascending by pid.

    Those of other pid namespaces (other containers, or the host's) are left out: their numbers
    mean something else here. What they do is not asked for.

    Raises:
        DeviceError: If they cannot be told.
    """
    try:
        nvml = nvml or load()
        gpu = nvml.call("nvmlDeviceGetHandleByUUID", uuid)
        found = nvml.call("nvmlDeviceGetComputeRunningProcesses", gpu)
    except DeviceGoneError:
        raise
    except DeviceError as error:
        raise DeviceError(f"cannot list the processes on {uuid}: {error}") from error
    listed = [_listed(one, name_here(int(one.pid)), "not asked for", {}) for one in found]
    return sorted((one for one in listed if one.pid is not None), key=lambda one: one.pid or 0)


class ProcessReader:
    """The processes on one GPU, and what each of them does."""

    def __init__(self, nvml: NVML, gpu: Any, wall: Callable[[], float] = time.time) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._wall = wall
        self._seen_us = 0
        self._names: dict[int, str] = {}

    def here(self) -> Mapping[int, str]:
        """The names of those of this pid namespace, by pid; looks up only who is new.

        Raises:
            DeviceError: If the driver does not tell who is there.
        """
        return self._look_up(self._running())

    def count(self) -> float:
        """How many have a context, wherever they run."""
        return float(len(self._running()))

    def read(self, *, mig_on: bool) -> Sequence[DeviceProcess]:
        """Every process with a context, ascending by pid; those of other namespaces last.

        Raises:
            DeviceError: If the driver does not tell who is there.
        """
        found = self._running()
        activity, reason = self._activity(mig_on)
        names = self._look_up(found)
        listed = [
            _listed(process, names.get(int(process.pid)), reason, activity) for process in found
        ]
        if any(process.name.startswith(_MPS_SERVER) for process in listed):
            listed = [
                DeviceProcess(one.pid, one.name, one.memory_bytes, None, _with(one, _UNDER_MPS))
                for one in listed
            ]
        return sorted(listed, key=lambda one: (one.pid is None, one.pid or 0))

    def _look_up(self, found: Sequence[Any]) -> Mapping[int, str]:
        pids = {int(process.pid) for process in found}
        names = {pid: self._names.get(pid) or name_here(pid) for pid in pids}
        self._names = {pid: name for pid, name in names.items() if name is not None}
        return self._names

    def _running(self) -> Sequence[Any]:
        found: Sequence[Any] = self._nvml.call("nvmlDeviceGetComputeRunningProcesses", self._gpu)
        return found

    def _activity(self, mig_on: bool) -> tuple[Mapping[int, float], str]:
        """SM use by the driver's pid, and why it is not known of the others."""
        if mig_on:
            return {}, _UNDER_MIG
        if self._seen_us > self._wall() * 1e6:  # the time of day was set back
            self._seen_us = 0
        try:
            samples = self._nvml.call("nvmlDeviceGetProcessUtilization", self._gpu, self._seen_us)
        except DeviceGoneError:
            raise
        except NothingError:  # nobody has run anything
            return {}, _NO_SAMPLE
        except DeviceError as error:
            return {}, str(error)
        newest: dict[int, tuple[int, float]] = {}
        for sample in samples:
            stamp = int(sample.timeStamp)
            # The driver pads the list with entries of no time, and repeats what was seen.
            if stamp <= self._seen_us or not 0 <= sample.smUtil <= 100:
                continue
            if stamp >= newest.get(sample.pid, (0, 0.0))[0]:
                newest[sample.pid] = (stamp, sample.smUtil / 100)
        self._seen_us = max([self._seen_us, *(stamp for stamp, _ in newest.values())])
        return {pid: part for pid, (_, part) in newest.items()}, _NO_SAMPLE


def _listed(
    process: Any, name: str | None, reason: str, activity: Mapping[int, float]
) -> DeviceProcess:
    pid = int(process.pid)
    try:
        memory: int | None = int(number(process.usedGpuMemory))
    except MissingError:
        memory = None
    part = activity.get(pid)
    reasons = [] if memory is not None else [_NO_MEMORY]
    if part is None:
        reasons.append(reason)
    if name is None:
        reasons.insert(0, _ELSEWHERE.format(pid))
    return DeviceProcess(
        None if name is None else pid, name or "", memory, part, "; ".join(reasons)
    )


def _with(process: DeviceProcess, reason: str) -> str:
    kept = [part for part in process.reason.split("; ") if part and part != _NO_SAMPLE]
    return "; ".join([*kept, reason])


def name_here(pid: int) -> str | None:
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
