"""What happens on an NVIDIA GPU: told by the driver, or seen by comparing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.clock import Clock
from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceGoneError,
    Severity,
)
from treadle.devices.nvidia.library import NVML, MissingError
from treadle.devices.nvidia.processes import ProcessReader
from treadle.devices.nvidia.throttle import Throttle

_MOST_AT_ONCE = 64
"""Events of the driver in one call: a storm must not keep the caller."""
_PARTITION_SECONDS = 10.0
"""The mode takes 0.2 ms to ask for, and hardly ever changes."""
_XIDS = {
    13: "a program's fault on the GPU (graphics engine exception)",
    31: "a program's fault on the GPU (page fault)",
    43: "a program's fault on the GPU (reset of its channel)",
    45: "a program was ended by the driver",
    48: "double-bit memory error",
    63: "memory rows remapped, or a page retired",
    64: "memory rows could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "memory error, contained to one program",
    95: "memory error, not contained",
    119: "the GPU's own processor (GSP) does not answer",
}
_PROGRAMS_FAULT = frozenset({13, 31, 43, 45})


class Events:
    """The events of one GPU since the last call."""

    def __init__(
        self,
        nvml: NVML,
        gpu: Any,
        *,
        uuid: str,
        clock: Clock,
        throttle: Throttle,
        processes: ProcessReader,
        partition: Callable[[], str],
    ) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._uuid = uuid
        self._clock = clock
        self._throttle = throttle
        self._processes = processes
        self._partition = partition
        self._set: Any = None
        self._found: list[DeviceEvent] = []
        self._held: str | None = None
        self._seen: Mapping[int, str] | None = None
        self._parts: str | None = None
        self._next_partition = clock.now()
        self._gone = False
        self._failed: set[str] = set()
        self._register()

    def read(self) -> Sequence[DeviceEvent]:
        """Everything since the last call; a GPU that is gone says so once."""
        if not self._gone:
            try:
                for name, look in (
                    ("driver's events", self._driver),
                    ("throttle reasons", self._clocks),
                    ("processes", self._compare_processes),
                    ("MIG mode", self._compare_partition),
                ):
                    self._try(name, look)
            except DeviceGoneError as error:
                self._gone = True
                self._tell("gone", Severity.ERROR, str(error))
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Give the driver its event set back."""
        if self._set is not None:
            with contextlib.suppress(DeviceError):
                self._nvml.call("nvmlEventSetFree", self._set)
            self._set = None

    def _try(self, name: str, look: Callable[[], None]) -> None:
        """A way to see events that fails says so once, and once when it is back."""
        try:
            look()
        except DeviceGoneError:
            raise
        except DeviceError as error:
            if name not in self._failed:
                self._failed.add(name)
                lasting = isinstance(error, MissingError)
                severity = Severity.INFO if lasting else Severity.WARNING
                self._tell("source-failed", severity, f"{name}: {error}")
        else:
            if name in self._failed:
                self._failed.remove(name)
                self._tell("source-back", Severity.INFO, name)

    def _register(self) -> None:
        try:
            wanted = self._nvml.constant("nvmlEventTypeXidCriticalError") | self._nvml.constant(
                "nvmlEventTypeDoubleBitEccError"
            )
            wanted &= int(self._nvml.call("nvmlDeviceGetSupportedEventTypes", self._gpu))
            if not wanted:
                raise MissingError("the GPU reports none")
            self._set = self._nvml.call("nvmlEventSetCreate")
            self._nvml.call("nvmlDeviceRegisterEvents", self._gpu, wanted, self._set)
        except DeviceError as error:
            self.close()
            self._tell("source-failed", Severity.INFO, f"XID events: {error}")

    def _driver(self) -> None:
        if self._set is None:
            return
        for _ in range(_MOST_AT_ONCE):
            data = self._nvml.wait_for_event(self._set)
            if data is None:
                return
            self._told(int(data.eventType), int(data.eventData))

    def _told(self, kind: int, content: int) -> None:
        if kind & self._nvml.constant("nvmlEventTypeXidCriticalError"):
            severity = Severity.WARNING if content in _PROGRAMS_FAULT else Severity.ERROR
            meaning = _XIDS.get(content, "see NVIDIA's list of XID errors")
            self._tell("xid", severity, f"XID {content}: {meaning}")
        if kind & self._nvml.constant("nvmlEventTypeDoubleBitEccError"):
            self._tell("ecc", Severity.ERROR, "uncorrected memory error")

    def _clocks(self) -> None:
        words = self._throttle.read().words
        before, self._held = self._held, words
        if words and not before:
            self._tell("throttle-start", Severity.WARNING, f"clocks held down: {words}")
        elif before and not words:
            self._tell("throttle-end", Severity.INFO, f"clocks are free again; it was {before}")

    def _compare_processes(self) -> None:
        now = self._processes.here()
        before, self._seen = self._seen, now
        if before is None:
            return
        for pid in sorted(now.keys() - before.keys()):
            self._tell("process-start", Severity.INFO, f"{now[pid]} (pid {pid})")
        for pid in sorted(before.keys() - now.keys()):
            self._tell("process-end", Severity.INFO, f"{before[pid]} (pid {pid})")

    def _compare_partition(self) -> None:
        now = self._clock.now()
        if now < self._next_partition:
            return
        self._next_partition = now + _PARTITION_SECONDS
        parts = self._partition()
        before, self._parts = self._parts, parts
        if before is not None and parts != before:
            self._tell("partition", Severity.WARNING, f"MIG was {before or '?'}, is {parts or '?'}")

    def _tell(self, kind: str, severity: Severity, text: str) -> None:
        self._found.append(DeviceEvent(self._clock.now(), self._uuid, kind, severity, text))
