"""What monitoring costs: CPU time, memory, and how regular the 10 ms tick is.

``python bench/monitor.py`` starts a monitor over 8 fake devices that have a real GPU's sources,
each at a turnstile where somebody works, and looks at its helper from outside. A read of a fake
device takes next to no time, so what is measured is the monitor's own. With ``--real-costs`` each
read keeps the CPU for as long as one of a real GPU did (``treadle.devices.catalogue``), and so does
each look for events and processes: what is measured then is whether all of it stays within the
budget, and how often each source is read for that.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.monitoring.cost import busy_page, cpu_seconds, wait_for_helper
from treadle.bench.results import Machine, date_now, save
from treadle.devices.catalogue import GPU_SOURCES, FunctionSource, SourceSpec
from treadle.devices.device import (
    DeviceEvent,
    DeviceInfo,
    DeviceKind,
    DeviceProcess,
    Link,
    Mechanism,
    MonitoredDevice,
    Reading,
    Source,
)
from treadle.errors import TreadleError
from treadle.monitor import Monitor

_ROOT = Path(__file__).resolve().parent.parent
_RESULTS = _ROOT / "bench" / "results" / "monitor.json"
_SETTLE_SECONDS = 25.0
"""Until the pace follows what was measured."""
_REAL, _WITHOUT_GPM = "real", "without-gpm"
_PROCESSES_SECONDS = 3.285e-3
"""Listing processes and looking for events once took so long on an H200."""
_EVENTS_SECONDS = (
    GPU_SOURCES["nvml.processes"].cost_seconds + GPU_SOURCES["nvml.clocks"].cost_seconds
)
"""At most: it asks for processes, and why clocks are held down."""


class Results(Struct, frozen=True, kw_only=True):
    """The document: fractions of a core, seconds, bytes."""

    format: int = 2
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    devices: int
    seconds: float
    helper_cpu_fraction: float
    """Of the helper: all its threads."""
    monitor_cpu_fraction: float
    """Of the process that watches it, which does nothing else here."""
    read_fraction: float
    """What reads take of it, by the helper's own measurements."""
    real_costs: bool
    """Whether reads take as long as those of a real GPU."""
    gpm: bool
    """Whether there is the performance monitor: the budget is 2% with it, 1% without."""
    interval_seconds: dict[str, float]
    """Between reads of each source of the first device, at the end."""
    samples_per_second: float
    tick_p50_seconds: float
    """Between two ticks of the tier that is meant to come every 10 ms."""
    tick_p99_seconds: float
    tick_max_seconds: float
    helper_memory_bytes: int
    """Proportional set size."""
    shared_memory_bytes: int


class _Power:
    """Readings of power: as many as would have come since the last time."""

    def __init__(self, refresh_seconds: float) -> None:
        self._refresh_seconds = refresh_seconds
        self._last = time.monotonic()

    def read(self) -> Sequence[Reading]:
        now = time.monotonic()
        count = int((now - self._last) / self._refresh_seconds)
        self._last += count * self._refresh_seconds
        return [Reading("power", 300.0, now, self._refresh_seconds)] * count


def _fake_source(spec: SourceSpec, real_costs: bool) -> Source:
    """A source that answers at once, or after as much CPU time as a real one's."""
    takes, power = spec.cost_seconds if real_costs else 0.0, _Power(spec.refresh_seconds)

    def read() -> Sequence[Reading]:
        _work(takes)
        if spec.metrics == ("power",):
            return power.read()
        now = time.monotonic()
        return [Reading(metric, 1.0, now, 0.0) for metric in spec.metrics]

    return FunctionSource(spec, read)


def _work(seconds: float) -> None:
    """Keep the CPU for so long."""
    end = time.thread_time() + seconds if seconds else 0.0
    while seconds and time.thread_time() < end:
        pass


class _FakeDevice:
    def __init__(self, index: int, real_costs: bool, gpm: bool) -> None:
        self._real_costs = real_costs
        self.info = DeviceInfo(
            uuid=f"FAKE-{index}",
            index=index,
            name="Fake",
            kind=DeviceKind.SIMULATED,
            cores=132,
            memory_bytes=1 << 37,
        )
        self._sources = [
            _fake_source(spec, real_costs)
            for spec in GPU_SOURCES.values()
            if gpm or "gpm" not in spec.name
        ]

    def mechanisms(self) -> Sequence[Mechanism]:
        return ()

    def links(self) -> Sequence[Link]:
        return ()

    def sources(self) -> Sequence[Source]:
        return self._sources

    def processes(self) -> Sequence[DeviceProcess]:
        _work(_PROCESSES_SECONDS if self._real_costs else 0.0)
        return ()

    def events(self) -> Sequence[DeviceEvent]:
        _work(_EVENTS_SECONDS if self._real_costs else 0.0)
        return ()

    def close(self) -> None:
        """Nothing to give back."""


def devices(told: str) -> tuple[Sequence[MonitoredDevice], Sequence[str]]:
    """What the helper finds: so many, with real costs or not, with GPM or not."""
    count, *words = told.split(":")
    real, gpm = _REAL in words, _WITHOUT_GPM not in words
    return [_FakeDevice(index, real, gpm) for index in range(int(count))], ()


def _memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise TreadleError("the system does not tell how much memory a process has")


def measure(count: int, seconds: float, *, real_costs: bool, gpm: bool) -> Results:
    """Run a monitor for that long, and look at it."""
    machine = describe_machine()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for index in range(count):
            stack.enter_context(busy_page(folder, f"FAKE-{index}"))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_ROOT / "bench"), *sys.path[1:]])
        told = f"{count}:{_REAL if real_costs else ''}:{'' if gpm else _WITHOUT_GPM}"
        monitor = stack.enter_context(Monitor(f"monitor:devices={told}", folder=folder))
        pid = wait_for_helper(monitor)
        time.sleep(_SETTLE_SECONDS)
        reader = monitor.reader
        assert reader is not None
        series = range(len(reader.directory.series))
        before = [reader.since(number, last=1)["number"].sum() for number in series]
        began, helper, own = time.monotonic(), cpu_seconds(pid), time.process_time()
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        helper, own = cpu_seconds(pid) - helper, time.process_time() - own
        after = [reader.since(number, last=1)["number"].sum() for number in series]
        at = monitor.history("FAKE-0", "gate_busy", min(seconds, 50.0))["at"]
        gaps = np.sort(np.diff(at))
        paces = [reader.pace(number) for number in range(len(reader.directory.sources))]
        return Results(
            date=date_now(),
            command=command_line(),
            machine=machine,
            versions=versions(),
            devices=count,
            seconds=round(elapsed, 3),
            helper_cpu_fraction=helper / elapsed,
            monitor_cpu_fraction=own / elapsed,
            read_fraction=sum(pace.cost_seconds / pace.interval_seconds for pace in paces),
            real_costs=real_costs,
            gpm=gpm,
            interval_seconds={
                entry.name: pace.interval_seconds
                for entry, pace in zip(reader.directory.sources, paces, strict=True)
                if entry.device == "FAKE-0"
            },
            samples_per_second=float(sum(after) - sum(before)) / elapsed,
            tick_p50_seconds=float(np.quantile(gaps, 0.5)),
            tick_p99_seconds=float(np.quantile(gaps, 0.99)),
            tick_max_seconds=float(gaps[-1]),
            helper_memory_bytes=_memory_bytes(pid),
            shared_memory_bytes=reader.nbytes,
        )


def table(results: Results) -> Table:
    """The figures for a person."""
    shown = Table("FIGURE", "VALUE", box=None, pad_edge=False, header_style="bold")
    rows = [
        ("devices", f"{results.devices}"),
        ("helper, of a core", f"{results.helper_cpu_fraction:.2%}"),
        ("process that watches it, of a core", f"{results.monitor_cpu_fraction:.2%}"),
        ("of it, reads", f"{results.read_fraction:.2%}"),
        ("samples a second", f"{results.samples_per_second:.0f}"),
        ("tick P50", f"{results.tick_p50_seconds * 1e3:.2f} ms"),
        ("tick P99", f"{results.tick_p99_seconds * 1e3:.2f} ms"),
        ("tick longest", f"{results.tick_max_seconds * 1e3:.2f} ms"),
        ("helper's memory", f"{results.helper_memory_bytes / 2**20:.1f} MiB"),
        ("of it, readings", f"{results.shared_memory_bytes / 2**20:.1f} MiB"),
    ]
    rows += [
        (f"{name} is read every", f"{seconds:.2f} s")
        for name, seconds in results.interval_seconds.items()
    ]
    for name, value in rows:
        shown.add_row(name, value)
    return shown


def main() -> int:
    """Measure, print and save; give the exit status."""
    parser = argparse.ArgumentParser(description="Measure what monitoring costs.")
    parser.add_argument("--devices", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0, help="default: %(default)s")
    parser.add_argument(
        "--real-costs", action="store_true", help="reads take the CPU time of a real GPU's"
    )
    parser.add_argument("--without-gpm", action="store_true", help="and its larger budget")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    try:
        results = measure(
            arguments.devices,
            arguments.seconds,
            real_costs=arguments.real_costs,
            gpm=not arguments.without_gpm,
        )
        save(results, arguments.output)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    console = Console(highlight=False)
    console.print(table(results))
    console.print(f"saved: {arguments.output}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
