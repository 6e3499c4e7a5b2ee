"""What monitoring costs: CPU time of a process, how regular its tick is, and others beside it."""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from msgspec import Struct

from treadle.bench.colocation.process import RoleProcess
from treadle.devices.device import (
    DeviceEvent,
    DeviceInfo,
    DeviceProcess,
    Link,
    Mechanism,
    MonitoredDevice,
    Source,
)
from treadle.devices.find import find_devices
from treadle.errors import TreadleError
from treadle.monitor import Monitor
from treadle.turnstile.page import PAGE_BYTES, RECORD_BYTES, SEATED, Page, new_page

WITHOUT_GPM = "treadle.bench.monitoring.cost:without_gpm"
"""Finds the devices as they are, but for the GPU's performance monitor."""
_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 30.0
_SETTLE_SECONDS = 2.0
_PACED_SECONDS = 10.0
"""After the helper's second plan: until the first it has read as the catalogue claims."""
_MEMBERS = 3
_MOST_HISTORY_SECONDS = 50.0


class Cost(Struct, frozen=True, kw_only=True):
    """What one way to monitor takes."""

    name: str
    seconds: float
    cpu_fraction: float
    """Of one core: all threads of the process that reads."""
    samples_per_second: float | None = None
    tick_p50_seconds: float | None = None
    """Between two ticks that are meant to come every 10 ms."""
    tick_p99_seconds: float | None = None
    tick_max_seconds: float | None = None
    reason: str = ""
    """Why it was not measured; empty if it was."""


class Rival(Struct, frozen=True, kw_only=True):
    """A way to poll with nvitop."""

    name: str
    mode: str
    interval_seconds: float


RIVALS = (
    Rival(name="nvitop collector, 1 s", mode="collector", interval_seconds=1.0),
    Rival(name="nvitop collector, 100 ms", mode="collector", interval_seconds=0.1),
    Rival(name="nvitop devices, 100 ms", mode="devices", interval_seconds=0.1),
)
"""The collector as it comes; the same at the pace at which treadle reads most sources; and of the
figures that both have, utilisation, memory, power, temperature and clocks only, at that pace."""


class _Fewer:
    """A device without some sources."""

    def __init__(self, device: MonitoredDevice) -> None:
        self._device = device

    @property
    def info(self) -> DeviceInfo:
        return self._device.info

    def mechanisms(self) -> Sequence[Mechanism]:
        return self._device.mechanisms()

    def links(self) -> Sequence[Link]:
        return self._device.links()

    def sources(self) -> Sequence[Source]:
        return [source for source in self._device.sources() if "gpm" not in source.name]

    def processes(self) -> Sequence[DeviceProcess]:
        return self._device.processes()

    def events(self) -> Sequence[DeviceEvent]:
        return self._device.events()

    def close(self) -> None:
        self._device.close()


def without_gpm() -> tuple[Sequence[MonitoredDevice], Sequence[str]]:
    """What the helper finds."""
    devices, reasons = find_devices()
    return [_Fewer(device) for device in devices], reasons


@contextmanager
def busy_page(folder: Path, uuid: str) -> Iterator[None]:
    """A turnstile with members, whose seats are held meanwhile: it is read at every tick."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / uuid).write_bytes(new_page(uuid))
    with (folder / uuid).open("r+b") as file:
        page = Page.from_buffer(mmap.mmap(file.fileno(), PAGE_BYTES))
        for index in range(_MEMBERS):
            page.record[index].state, page.record[index].pid = SEATED, os.getpid()
            page.members[index % 3] |= 1 << index
            place = Page.record.offset + index * RECORD_BYTES
            fcntl.lockf(file, fcntl.LOCK_EX, 1, place, os.SEEK_SET)
        yield


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all threads: to the nanosecond where the kernel tells that."""
    try:
        threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
        found = [int(thread.read_text().split()[0]) for thread in threads]
    except (OSError, ValueError, IndexError):
        found = []
    if any(found):
        return sum(found) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wait_for_helper(monitor: Monitor) -> int:
    """Wait until a monitor's helper reads; give its pid.

    Raises:
        TreadleError: If it does not come to that.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not (snapshot := monitor.snapshot()).devices or snapshot.helper_pid is None:
        if time.monotonic() > deadline:
            raise TreadleError(snapshot.trouble or "the monitor does not start")
        time.sleep(0.05)
    return snapshot.helper_pid


def measure_monitor(name: str, devices: str, uuid: str, folder: Path, seconds: float) -> Cost:
    """Run a monitor for that long, with members at the turnstile of one device.

    Raises:
        TreadleError: If it does not start.
    """
    with busy_page(folder, uuid), Monitor(devices, folder=folder) as monitor:
        pid = wait_for_helper(monitor)
        time.sleep(_PACED_SECONDS)
        reader = monitor.reader
        assert reader is not None
        series = range(len(reader.directory.series))
        before = sum(int(reader.since(n, last=1)["number"].sum()) for n in series)
        began, used = time.monotonic(), cpu_seconds(pid)
        time.sleep(seconds)
        used, elapsed = cpu_seconds(pid) - used, time.monotonic() - began
        after = sum(int(reader.since(n, last=1)["number"].sum()) for n in series)
        at = monitor.history(uuid, "gate_busy", min(seconds, _MOST_HISTORY_SECONDS))["at"]
        if monitor.snapshot().helper_pid != pid or len(at) < 2:
            raise TreadleError(f"{name}: the helper was started again while it was measured")
        gaps = np.diff(at)
        return Cost(
            name=name,
            seconds=elapsed,
            cpu_fraction=used / elapsed,
            samples_per_second=(after - before) / elapsed,
            tick_p50_seconds=float(np.quantile(gaps, 0.5)),
            tick_p99_seconds=float(np.quantile(gaps, 0.99)),
            tick_max_seconds=float(gaps.max()),
        )


def measure_rival(rival: Rival, seconds: float, environment: Mapping[str, str]) -> Cost:
    """Let nvitop poll for that long in a process of its own; say so where it is not installed."""
    command = [sys.executable, "-m", "treadle.bench.monitoring.nvitop_poll"]
    role = RoleProcess(rival.name, [*command, rival.mode, str(rival.interval_seconds)], environment)
    try:
        pid = int(role.expect("ready", _START_SECONDS)["pid"])
        time.sleep(_SETTLE_SECONDS)
        began, used = time.monotonic(), cpu_seconds(pid)
        role.watch(seconds)
        used, elapsed = cpu_seconds(pid) - used, time.monotonic() - began
        return Cost(name=rival.name, seconds=elapsed, cpu_fraction=used / elapsed)
    except (TreadleError, OSError) as error:
        reason = str(error).partition("\n")[0].removeprefix(f"{rival.name} ")
        return Cost(name=rival.name, seconds=0.0, cpu_fraction=0.0, reason=reason)
    finally:
        role.close()
