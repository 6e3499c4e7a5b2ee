"""What a job may take of the host: by control groups where they are ours, else by lesser means.

Control groups (version 2) can be used by who is not root where a folder of theirs was delegated,
as systemd does for each user's services. Elsewhere memory is bounded for each process
(``RLIMIT_AS``), not for all of a job together, and the CPU is shared by priority (``nice``).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from treadle.types import Priority

_ROOT = Path("/sys/fs/cgroup")
_SLICE = "treadle.slice"
_WANTED = ("memory", "cpu", "pids")
_WEIGHTS = {Priority.CRITICAL: 1000, Priority.NORMAL: 100, Priority.BACKGROUND: 10}
NICE = {Priority.CRITICAL: 0, Priority.NORMAL: 0, Priority.BACKGROUND: 10}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How one job is bounded."""

    says: str
    """In words, for a person."""
    cgroup: str = ""
    """The control group that its first process enters; empty if none."""
    limits: dict[str, int] = field(default_factory=dict)
    """Resource limits, without ``RLIMIT_``."""
    nice: int = 0


class HostLimits:
    """Bounds jobs, by the best means that there are here."""

    def __init__(self, root: Path = _ROOT, own: str | None = None) -> None:
        """Find out what those are.

        Args:
            root: Where control groups are.
            own: This process's control group; as the kernel says, unless given.
        """
        self._slice: Path | None = None
        self._controllers: frozenset[str] = frozenset()
        self.reason = ""
        """Why there are no control groups for us; empty if there are."""
        try:
            self._slice = _make_slice(root, _own_group() if own is None else own)
            enabled = (self._slice / "cgroup.subtree_control").read_text().split()
            self._controllers = frozenset(enabled)
        except OSError as error:
            self._slice = None
            self.reason = f"no control group is delegated here: {error.strerror}"

    def bounds(
        self, mark: str, priority: Priority, memory_bytes: int | None, *, has_gpu: bool = False
    ) -> Bounds:
        """How a job is bounded; makes its control group.

        Args:
            mark: Tells the attempt from all others of this machine, for the group's name.
            priority: Of the job.
            memory_bytes: Of the host that it may have; no limit if None.
            has_gpu: CUDA reserves far more addresses than it uses memory: they are not limited.
        """
        if self._slice is not None:
            try:
                return self._group(self._slice / f"job-{mark}", priority, memory_bytes)
            except OSError as error:
                self.reason = f"its control group cannot be made: {error.strerror}"
        nice = NICE[priority]
        said = [f"nice {nice}"]
        limits = {}
        if memory_bytes is not None and has_gpu:
            said.append("nothing holds a program on a GPU to its host memory")
        elif memory_bytes is not None:
            limits["AS"] = memory_bytes
            said.append("RLIMIT_AS, for each process")
        return Bounds(f"{', '.join(said)}; {self.reason}", "", limits, nice)

    def remove(self, mark: str) -> None:
        """Remove an attempt's control group, if there is one and nobody is in it any more."""
        if self._slice is not None:
            with contextlib.suppress(OSError):
                (self._slice / f"job-{mark}").rmdir()

    def _group(self, group: Path, priority: Priority, memory_bytes: int | None) -> Bounds:
        group.mkdir(exist_ok=True)
        said, nice, limits = [], 0, {}
        if "cpu" in self._controllers:
            (group / "cpu.weight").write_text(f"{_WEIGHTS[priority]}")
            said.append(f"cpu.weight {_WEIGHTS[priority]}")
        else:
            nice = NICE[priority]
            said.append(f"nice {nice}")
        if memory_bytes is not None and "memory" in self._controllers:
            (group / "memory.max").write_text(f"{memory_bytes}")
            with contextlib.suppress(OSError):  # the kernel may be built without
                (group / "memory.swap.max").write_text("0")
                (group / "memory.oom.group").write_text("1")
            said.append("memory.max")
        elif memory_bytes is not None:
            limits["AS"] = memory_bytes
            said.append("RLIMIT_AS, for each process")
        return Bounds(f"control group: {', '.join(said)}", str(group), limits, nice)


def _own_group() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    raise OSError(0, "there are no control groups of version 2")


def _make_slice(root: Path, own: str) -> Path:
    """A group of ours in the outermost folder that is delegated to us, with its controllers."""
    if not (root / "cgroup.controllers").exists():
        raise OSError(0, "there are no control groups of version 2")
    group, outermost = root / own.lstrip("/"), None
    while True:
        if os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK):
            outermost = group
        elif outermost is not None:
            break
        if group == root:
            break
        group = group.parent
    if outermost is None:
        raise PermissionError(0, "none can be written")
    there = outermost / "cgroup.subtree_control"
    _enable(there)
    made = outermost / _SLICE
    made.mkdir(exist_ok=True)
    _enable(made / "cgroup.subtree_control")
    return made


def _enable(control: Path) -> None:
    """Hand on what controllers there are; one that cannot be handed on is done without."""
    offered = (control.parent / "cgroup.controllers").read_text().split()
    for name in set(_WANTED) & set(offered):
        with contextlib.suppress(OSError):
            control.write_text(f"+{name}")
