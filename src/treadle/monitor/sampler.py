"""Reads every source of every device in its turn, and writes what comes into the rings.

It runs in the helper process: a driver that hangs, hangs only that. All calls to devices are made
by the thread that calls ``step``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from treadle.clock import Clock
from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceGoneError,
    DeviceProcess,
    MonitoredDevice,
    Reading,
    Severity,
    Source,
)
from treadle.monitor import gate
from treadle.monitor.directory import EVENTS, GATE, Directory, Series, SourceEntry
from treadle.monitor.pace import LEAST_SECONDS, Turns, budget_of, intervals
from treadle.monitor.ring import Writer
from treadle.monitor.spending import CpuTime, Estimate, Spending
from treadle.turnstile import Turnstile, TurnstileError

SLOW_SECONDS = 1.0
"""How often events, processes and pages are looked for."""
PROCESSES_SECONDS = 5.0
_PROCESSES_SHARE = 0.1
"""Of the budget, for listing processes: where that is not enough, it is done less often."""
_PROCESSES_COST = 0.003
"""Listing a GPU's processes takes calls and a look into /proc for each. Measured in the end."""

_SERVERS = "nvidia-cuda-mps"
"""The kernel keeps 15 characters of a name. The MPS server works for its clients, who are asked."""

OnEvent = Callable[[DeviceEvent], None]


def plan(
    devices: Sequence[MonitoredDevice],
    reasons: Iterable[str],
    *,
    left_out: Iterable[tuple[str, str]] = (),
    tick_seconds: float = 0.01,
) -> tuple[Directory, list[Source]]:
    """Lay out what is read, and how often at first; the sources are in the directory's order."""
    skipped = set(left_out)
    chosen = [
        (device.info.uuid, source)
        for device in devices
        for source in device.sources()
        if (device.info.uuid, source.name) not in skipped
    ]
    pace = intervals(
        [source.refresh_seconds for _, source in chosen],
        [source.cost_seconds for _, source in chosen],
        budget_of(source.name for _, source in chosen),
    )
    entries = tuple(
        SourceEntry(uuid, source.name, seconds, source.cost_seconds, tuple(source.metrics))
        for (uuid, source), seconds in zip(chosen, pace, strict=True)
    )
    series = [
        # However often it is read: the pace is set anew later, and a source of samples gives
        # several for each read, at the pace that it changes.
        Series(uuid, metric, source.name, max(source.refresh_seconds, 0.01))
        for uuid, source in chosen
        for metric in source.metrics
    ]
    # A recording brings its own figures of the turnstile.
    played = {(one.device, one.metric) for one in series}
    series += [
        Series(device.info.uuid, metric, GATE, tick_seconds)
        for device in devices
        for metric in gate.METRICS
        if (device.info.uuid, metric) not in played
    ]
    infos = tuple(device.info for device in devices)
    directory = Directory(infos, entries, tuple(series), tuple(reasons))
    return directory, [source for _, source in chosen]


class Sampler:
    """The main thread of the helper."""

    def __init__(
        self,
        devices: Sequence[MonitoredDevice],
        sources: Sequence[Source],
        writer: Writer,
        *,
        folder: Path,
        clock: Clock,
        on_event: OnEvent,
        left_out: Iterable[tuple[str, str]] = (),
        tick_seconds: float = 0.01,
        cpu: CpuTime | None = None,
    ) -> None:
        directory = writer.directory
        self._devices = {device.info.uuid: device for device in devices}
        self._numbers = {device.info.uuid: n for n, device in enumerate(devices)}
        self._unasked = {uuid for uuid, name in left_out if name == EVENTS}
        self._said_gone: set[str] = set()
        self._sources, self._entries = sources, directory.sources
        self._writer, self._folder, self._clock, self._on_event = writer, folder, clock, on_event
        self._series: Mapping[tuple[str, str, str], int] = {
            (one.device, one.source, one.metric): n for n, one in enumerate(directory.series)
        }
        now = clock.now()
        self._turns = Turns([entry.interval_seconds for entry in self._entries], now)
        self._cpu = cpu or CpuTime()
        self._budget = budget_of(source.name for source in sources)
        self._spending = Spending(
            [source.refresh_seconds for source in sources],
            [source.cost_seconds for source in sources],
            self._budget,
            now=now,
            cpu=self._cpu,
        )
        self._listing = Estimate(_PROCESSES_COST)
        self._failing: dict[int, str] = {}
        self._blind: set[str] = set()
        self._slow_due = self._processes_due = now
        self._unseated: dict[str, frozenset[int]] = {}
        self._ungated: dict[str, frozenset[int]] = {}
        self.gate = gate.GateTier(folder, directory.series, writer, tick_seconds=tick_seconds)

    def step(self) -> float:
        """Do all that is due; returns when to come back."""
        now = began = self._clock.now()
        self._writer.beat(now)
        for _ in range(len(self._entries)):  # a slow driver's sources would be due for ever
            if (index := self._turns.take(now)) is None:
                break
            used = self._cpu.thread()
            self._read(index)
            self._spending.add(index, self._cpu.thread() - used)
            now = self._clock.now()
            self._writer.beat(now)
        if (pace := self._spending.plan(now)) is not None:
            self._repace(pace, now)
        if now >= self._slow_due:
            self._slow_due = now + SLOW_SECONDS
            self._look_around(now)
            self._writer.doing(None, time.monotonic())
        due = self._turns.next_due
        earliest = max(began + LEAST_SECONDS, now + LEAST_SECONDS / 2)
        return max(earliest, min(self._slow_due, due or self._slow_due))

    def _repace(self, pace: Sequence[float], now: float) -> None:
        """Read on at another pace, and say so."""
        self._turns.repace(pace, now)
        for index, (seconds, cost) in enumerate(zip(pace, self._spending.costs, strict=True)):
            self._writer.pace(index, seconds, cost)

    def _read(self, index: int) -> None:
        source, entry = self._sources[index], self._entries[index]
        self._writer.doing(index, time.monotonic())
        try:
            readings = [_checked(reading) for reading in source.read()]
        except DeviceGoneError as error:
            self._leave(entry.device, str(error))
            return
        except DeviceError as error:
            self._failed(index, str(error))
            return
        except Exception as error:  # a device is foreign code: one source fails, others go on
            self._failed(index, f"{type(error).__name__}: {error}")
            return
        finally:
            self._writer.doing(None, time.monotonic())
        if self._failing.pop(index, None) is not None:
            self._tell(entry.device, "source-back", Severity.INFO, f"{entry.name} answers again")
        for metric, value, at, window, reason in readings:
            number = self._series.get((entry.device, entry.name, metric))
            if number is not None:
                self._writer.write(number, at, value, window, reason)

    def _failed(self, index: int, reason: str) -> None:
        entry, now = self._entries[index], self._clock.now()
        for metric in entry.metrics:
            self._writer.write(
                self._series[entry.device, entry.name, metric], now, None, 0.0, reason
            )
        if index not in self._failing:
            self._tell(entry.device, "source-failed", Severity.WARNING, f"{entry.name}: {reason}")
        self._failing[index] = reason

    def _leave(self, uuid: str, reason: str) -> None:
        """Read a device no more: it is gone."""
        if self._devices.pop(uuid, None) is None:
            return
        gone = {i for i, entry in enumerate(self._entries) if entry.device == uuid}
        self._turns.leave(gone)
        self._spending.leave(gone)
        now = self._clock.now()
        for (device, source, _), number in self._series.items():
            if device == uuid and source != GATE:
                self._writer.write(number, now, None, 0.0, f"the device is gone: {reason}")
        if uuid not in self._said_gone:
            self._tell(uuid, "gone", Severity.ERROR, reason)

    def _look_around(self, now: float) -> None:
        self.gate.look_for_pages(now)
        for uuid, device in list(self._devices.items()):
            if uuid in self._unasked:
                continue
            self._looks_at(uuid)
            try:
                for event in device.events():
                    if event.kind == "gone":
                        self._said_gone.add(uuid)
                    self._on_event(event)
            except DeviceGoneError as error:
                self._leave(uuid, str(error))
            except DeviceError:
                pass  # events that cannot be had are missing; figures say what is wrong
            except Exception as error:  # foreign code again: nothing else may suffer from it
                self._cannot_see(uuid, "events", error)
        crowded = [uuid for uuid, page in self.gate.pages.items() if not page.empty]
        listing = now >= self._processes_due
        for uuid in crowded:
            if uuid in self._devices:
                self._looks_at(uuid)
                used = self._cpu.thread()
                listed = listing and uuid not in self._unasked
                self._look_for_ungated(uuid, list_processes=listed)
                if listed:
                    self._listing.add(self._cpu.thread() - used)
        if listing:
            least = len(crowded) * self._listing.seconds / (_PROCESSES_SHARE * self._budget)
            self._processes_due = now + max(PROCESSES_SECONDS, least)

    def _look_for_ungated(self, uuid: str, *, list_processes: bool) -> None:
        """Tell of processes that use a GPU past the members of its turnstile."""
        seats = self.gate.pages[uuid].seats
        try:
            with Turnstile.open(self._folder, uuid, create=False) as turnstile:
                members = turnstile.snapshot().members
        except TurnstileError:
            return
        alive = sum(1 << member.index for member in members)
        self.gate.pages[uuid].dead = seats & ~alive
        if not list_processes:
            return
        try:
            running = self._devices[uuid].processes() if members else ()
        except DeviceError:
            return  # nobody knows
        except Exception as error:  # foreign code
            self._cannot_see(uuid, "processes", error)
            return
        seated = {member.pid for member in members}
        # Those without a number here are of another container: nobody can tell whether they sit.
        found = {
            p.pid: p
            for p in running
            if p.pid is not None
            and not p.name.startswith(_SERVERS)
            and seated.isdisjoint(numbers_of(p.pid))
        }
        # Only who is seen twice: a context comes a little before its seat and goes a little after.
        before, self._unseated[uuid] = self._unseated.get(uuid, frozenset()), frozenset(found)
        told = self._ungated.get(uuid, frozenset())
        for pid in (found.keys() & before) - told:
            self._tell_ungated(uuid, found[pid])
        for pid in told - found.keys():
            self._tell(uuid, "ungated-end", Severity.INFO, f"process {pid} is ungated no more")
        self._ungated[uuid] = frozenset(found.keys() & (before | told))

    def _looks_at(self, uuid: str) -> None:
        """Say that a device is asked for something else than figures, from now on."""
        self._writer.doing(len(self._entries) + self._numbers[uuid], time.monotonic())

    def _cannot_see(self, uuid: str, what: str, error: Exception) -> None:
        """Tell once that a device's own code fails."""
        if uuid not in self._blind:
            self._blind.add(uuid)
            text = f"its {what} cannot be read: {type(error).__name__}: {error}"
            self._tell(uuid, "source-failed", Severity.WARNING, text)

    def _tell_ungated(self, uuid: str, process: DeviceProcess) -> None:
        self._tell(
            uuid,
            "ungated",
            Severity.WARNING,
            f"process {process.pid} ({process.name}) uses this GPU but not its turnstile",
        )

    def _tell(self, uuid: str, kind: str, severity: Severity, text: str) -> None:
        self._on_event(DeviceEvent(self._clock.now(), uuid, kind, severity, text))


def _checked(reading: Reading) -> Reading:
    """A reading as the rings can hold it: what is no number is no value.

    Raises:
        TypeError: If a part of it is of another type.
    """
    metric, value, at, window, reason = reading
    if not (math.isfinite(at) and math.isfinite(window)):
        raise ValueError(f"{metric} was sampled at {at}, over {window} s")
    if value is None:
        return Reading(metric, None, at, window, str(reason))
    if not math.isfinite(value):
        return Reading(metric, None, at, window, f"the device answers {value}")
    return reading


def numbers_of(pid: int) -> frozenset[int]:
    """A process's numbers in its pid namespaces: here, and as it sees itself in a container."""
    try:
        status = (Path("/proc") / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return frozenset((pid,))
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return frozenset((pid, *map(int, line.split()[1:])))
    return frozenset((pid,))
