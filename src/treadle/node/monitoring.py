"""The node's monitor: one that cannot start is a reason in the status, never a failed node."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

from treadle.devices.device import DeviceEvent, Severity
from treadle.monitor import Monitor, MonitorSnapshot, finder
from treadle.monitor.directory import Shared

OFF = "none"
"""Choice of devices with which nothing is monitored."""

_TOLD = (
    "sm_activity",
    "gpu_utilization",
    "cpu_utilization",
    "memory_used",
    "power",
    "temperature",
    "gate_busy",
)
"""What the status tells of each device, where it has that."""

_log = logging.getLogger("treadle.monitor")
_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.ERROR: logging.ERROR,
}


class NodeMonitor:
    """Starts with the node and ends with it."""

    def __init__(self, devices: str) -> None:
        self._devices = devices
        self._reason = ""
        self._last_text = ""
        self._monitor: Monitor | None = None
        if devices == OFF:
            self._reason = 'devices are not monitored: node.devices is "none"'
            return
        try:
            self._monitor = Monitor(finder(devices), on_event=self._on_event)
        except OSError as error:
            self._reason = f"the monitor cannot be made: {error.strerror}"

    def start(self) -> None:
        if self._monitor is None:
            return
        try:
            self._monitor.start()
        except RuntimeError as error:  # no more threads
            self._reason, self._monitor = f"the monitor cannot be started: {error}", None

    def snapshot(self) -> MonitorSnapshot:
        """The newest readings; without a monitor, the reason why there are none."""
        if self._monitor is None:
            return MonitorSnapshot(at=time.monotonic(), trouble=self._reason)
        return self._monitor.snapshot()

    def status(self) -> dict[str, Any]:
        """What the node's status tells of it."""
        snapshot = self.snapshot()
        return {
            "trouble": snapshot.trouble,
            "reasons": list(snapshot.reasons),
            "restarts": snapshot.restarts,
            "devices": [
                {
                    "index": view.info.index,
                    "uuid": view.info.uuid,
                    "name": view.info.name,
                    "kind": str(view.info.kind),
                    "memory_bytes": view.info.memory_bytes,
                    "readings": {metric: view.value(metric) for metric in _TOLD},
                }
                for view in snapshot.devices
            ],
        }

    def shared(self, after: int = 0) -> Shared:
        """Where its readings lie, and the events after so many."""
        snapshot, monitor = self.snapshot(), self._monitor
        count, events = monitor.events(after) if monitor else (0, ())
        return Shared(
            devices=self._devices,
            pid=os.getpid(),
            descriptor=monitor.descriptor if monitor else None,
            trouble=snapshot.trouble,
            reads=monitor is not None,
            restarts=snapshot.restarts,
            helper_pid=snapshot.helper_pid,
            left_out=snapshot.left_out,
            event_count=count,
            events=tuple(events),
        )

    async def close(self) -> None:
        """End it. What was read last can still be looked at."""
        if self._monitor is not None:
            await asyncio.to_thread(self._monitor.close)

    def _on_event(self, event: DeviceEvent) -> None:
        # A helper that fails in the same way again and again is told of once.
        if event.text != self._last_text:
            _log.log(_LEVELS[event.severity], "%s: %s", event.kind, event.text)
        self._last_text = event.text
