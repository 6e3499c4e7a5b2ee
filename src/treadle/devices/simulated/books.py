"""Who holds what on a simulated GPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from treadle.devices.device import DeviceError, DeviceProcess


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process as the simulation knows it."""

    name: str
    sm_activity: float


class Books:
    """Memory by owner, processes, and errors counted."""

    def __init__(self, *, memory_bytes: int, reserved_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.reserved_bytes = reserved_bytes
        self.processes: dict[int, Tenant] = {}
        self.ecc_corrected = 0
        self.ecc_uncorrected = 0
        self.throttled_other = False
        self._held: Counter[str] = Counter()

    @property
    def used_bytes(self) -> int:
        return self._held.total()

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - self.reserved_bytes - self.used_bytes

    def allocate(self, owner: str, nbytes: int) -> None:
        """Take memory.

        Raises:
            ValueError: If ``nbytes`` is negative.
            DeviceError: If there is not so much left.
        """
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        if nbytes > self.free_bytes:
            raise DeviceError(
                f"out of memory: {owner} asks for {nbytes} bytes, {self.free_bytes} are free"
            )
        self._held[owner] += nbytes

    def free(self, owner: str, nbytes: int | None = None) -> int:
        """Give back some or all of an owner's memory; returns how much.

        Raises:
            ValueError: If the owner does not hold so much.
        """
        held = self._held[owner]
        given = held if nbytes is None else nbytes
        if not 0 <= given <= held:
            raise ValueError(f"{owner} holds {held} bytes and cannot free {given}")
        self._held[owner] -= given
        if not self._held[owner]:
            del self._held[owner]
        return given

    def start(self, pid: int, tenant: Tenant, nbytes: int) -> None:
        """Give a process a context.

        Raises:
            ValueError: If it has one.
            DeviceError: If its memory does not fit.
        """
        if pid in self.processes:
            raise ValueError(f"process {pid} has a context already")
        self.allocate(owner_of(pid), nbytes)
        self.processes[pid] = tenant

    def end(self, pid: int) -> Tenant:
        """End a process; its memory is free.

        Raises:
            KeyError: If it has no context here.
        """
        tenant = self.processes.pop(pid)
        self.free(owner_of(pid))
        return tenant

    def listed(self) -> list[DeviceProcess]:
        return [
            DeviceProcess(pid, tenant.name, self._held[owner_of(pid)], tenant.sm_activity)
            for pid, tenant in sorted(self.processes.items())
        ]

    def check_integrity(self) -> None:
        """Assert that nothing is held by nobody, twice, or beyond what there is."""
        assert all(nbytes > 0 for nbytes in self._held.values()), self._held
        assert 0 <= self.used_bytes <= self.memory_bytes - self.reserved_bytes
        assert self.used_bytes + self.free_bytes + self.reserved_bytes == self.memory_bytes


def owner_of(pid: int) -> str:
    """The owner under which a process holds its memory."""
    return f"pid {pid}"
