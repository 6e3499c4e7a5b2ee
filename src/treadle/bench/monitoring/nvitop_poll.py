"""Polls the GPUs with nvitop until standard input ends, to be measured from outside."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any


def _say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def _poll_devices(devices: list[Any], interval_seconds: float) -> None:
    """Read what both have, each figure by the call that nvitop offers for it."""
    due = time.monotonic()
    while True:
        for device in devices:
            # Its figures of one kind come together by these calls; none is asked for twice.
            device.utilization_rates()
            device.memory_info()
            device.power_usage()
            device.temperature()
            device.clock_infos()
        due = max(due + interval_seconds, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    """Start to poll, and stay until nobody listens."""
    mode, interval_seconds = sys.argv[1], float(sys.argv[2])
    try:
        from nvitop import Device, ResourceMetricCollector
    except ImportError as error:
        _say("error", reason=f"nvitop is not installed: {error}")
        return 1
    try:
        devices = Device.all()
        if not devices:
            raise RuntimeError("nvitop finds no device")
        if mode == "collector":
            collector = ResourceMetricCollector(devices, interval=interval_seconds)
            collector.activate("measured")
        else:
            threading.Thread(
                target=_poll_devices, args=(devices, interval_seconds), daemon=True
            ).start()
    except Exception as error:  # it is another's code: whatever goes wrong, it is told
        _say("error", reason=f"{type(error).__name__}: {error}")
        return 1
    _say("ready", pid=os.getpid())
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    sys.stdout.flush()
    os._exit(code)  # its threads poll on otherwise
