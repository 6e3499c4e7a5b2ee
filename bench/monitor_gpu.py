"""Holds the monitor against a real GPU: what it records of known load, and what it costs.

``python bench/monitor_gpu.py --output DIR`` makes load on one GPU phase by phase: a square wave,
two programs at the turnstile, two clients of an MPS daemon of its own. It records meanwhile with
treadle's own recorder, holds the recording against what was done, and measures what the sampler
takes of a core, with the GPU's performance monitor (GPM) and without, and beside it nvitop where
that is installed. It needs PyTorch with CUDA. No setting of the GPU is changed.

nvitop is measured three times: its collector at the pace that it has by default, the same at
100 ms, which is how often treadle reads most sources, and at that pace only the calls for
utilisation, memory, power, temperature and clocks. treadle reads more: power every 20 ms, the
activity of SMs and pipes, links, errors, and the turnstile every 10 ms. The collector reads the
host and its own process besides.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from treadle.bench.colocation.gate import shared_folder
from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.monitoring.checks import check
from treadle.bench.monitoring.cost import (
    RIVALS,
    WITHOUT_GPM,
    Cost,
    measure_monitor,
    measure_rival,
    wait_for_helper,
)
from treadle.bench.monitoring.phases import Check, Phase
from treadle.bench.monitoring.scenario import Scenario, clean_environment
from treadle.bench.monitoring.tape import Figures, Tape
from treadle.bench.results import Machine, date_now, save
from treadle.devices.device import DeviceInfo, DeviceKind, MonitoredDevice
from treadle.devices.find import find_devices
from treadle.errors import TreadleError
from treadle.monitor import AUTO, Monitor, finder
from treadle.monitor.recording import Recorder, read

_LARGEST_BYTES = 1 << 20
_WIDTH = 140
_KINDS = (DeviceKind.NVIDIA, DeviceKind.SIMULATED)


class Results(Struct, frozen=True, kw_only=True):
    """The document: times are monotonic seconds, as in the recording."""

    format: int = 1
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    device: DeviceInfo
    phases: list[Phase]
    checks: list[Check]
    costs: list[Cost]
    recording_bytes: int


def _choose() -> tuple[MonitoredDevice, bool]:
    """The GPU to measure, and whether there is no other."""
    devices, reasons = find_devices()
    gpus = [device for device in devices if device.info.kind in _KINDS]
    if not gpus:
        raise TreadleError("; ".join(reasons) or "there is no GPU")
    return gpus[0], len(gpus) == 1


def record(
    device: MonitoredDevice, alone: bool, pages: Path, file: Path, seconds: float, say: Console
) -> tuple[list[Phase], list[Check]]:
    """Record while the scenario is played, and hold one against the other."""
    uuid = device.info.uuid
    with Monitor(finder(AUTO), folder=pages) as monitor:
        wait_for_helper(monitor)
        with Recorder(file, [uuid]) as recorder, Tape(monitor, recorder):
            scenario = Scenario(device, pages, seconds, say.print, alone=alone)
            phases = scenario.run()
        restarts = monitor.snapshot().restarts
    recording = read(file)
    checks = check(Figures(recording.parts[0], uuid), phases)
    size = file.stat().st_size

    def whole(what: str, passed: bool, expected: str, found: str) -> Check:
        return Check(phase="recording", what=what, passed=passed, expected=expected, found=found)

    return phases, [
        whole(
            "it is whole", not recording.missing, "nothing missing", recording.missing or "whole"
        ),
        whole("the helper ran through", restarts == 0, "no restarts", f"{restarts}"),
        whole("it is small", size <= _LARGEST_BYTES, "at most 1 MiB", f"{size / 1024:.0f} KiB"),
        *checks,
    ]


def measure_costs(uuid: str, pages: Path, seconds: float, say: Console) -> list[Cost]:
    """Everything that monitors, one after another on an idle GPU."""
    costs = []
    for name, devices in (("treadle", finder(AUTO)), ("treadle, without GPM", WITHOUT_GPM)):
        say.print(name)
        costs.append(measure_monitor(name, devices, uuid, pages, seconds))
    for rival in RIVALS:
        say.print(rival.name)
        costs.append(measure_rival(rival, seconds, clean_environment()))
    return costs


def checks_table(checks: list[Check]) -> Table:
    """The checks for a person."""
    shown = Table("PHASE", "CHECK", "", "EXPECTED", "FOUND", box=None, pad_edge=False)
    words = {True: "pass", False: "FAIL", None: "-"}
    for one in checks:
        shown.add_row(one.phase, one.what, words[one.passed], one.expected, one.found)
    return shown


def costs_table(costs: list[Cost]) -> Table:
    """The costs for a person, each beside treadle's first."""
    shown = Table(
        "READER", "CPU", "RATIO", "SAMPLES/S", "TICK P50", "TICK P99", box=None, pad_edge=False
    )
    own = costs[0].cpu_fraction
    for one in costs:
        if one.reason:
            shown.add_row(one.name, "-", "-", "-", one.reason)
            continue
        ratio = f"{one.cpu_fraction / own:.2f}" if own else "-"
        shown.add_row(
            one.name,
            f"{one.cpu_fraction:.2%}",
            ratio,
            "-" if one.samples_per_second is None else f"{one.samples_per_second:.0f}",
            _milliseconds(one.tick_p50_seconds),
            _milliseconds(one.tick_p99_seconds),
        )
    return shown


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"


def main() -> int:
    """Measure, print and save; the exit status is 1 if a check fails."""
    parser = argparse.ArgumentParser(description="Hold the monitor against a real GPU.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of each phase and cost; default: %(default)s"
    )
    parser.add_argument("--costs-only", action="store_true", help="record nothing, check nothing")
    arguments = parser.parse_args()
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH)
    try:
        machine = describe_machine()
        arguments.output.mkdir(parents=True, exist_ok=True)
        file = arguments.output / "gpu.rec"
        file.unlink(missing_ok=True)
        device, alone = _choose()
        with tempfile.TemporaryDirectory(dir=shared_folder()) as folder:
            pages = Path(folder) / "pages"
            pages.mkdir(mode=0o700)  # where there is no folder, the gate would make a page
            phases: list[Phase] = []
            checks: list[Check] = []
            if not arguments.costs_only:
                phases, checks = record(device, alone, pages, file, arguments.seconds, console)
            costs = measure_costs(
                device.info.uuid, Path(folder) / "costs", arguments.seconds, console
            )
        results = Results(
            date=date_now(),
            command=command_line(),
            machine=machine,
            versions=versions(),
            device=device.info,
            phases=phases,
            checks=checks,
            costs=costs,
            recording_bytes=file.stat().st_size if file.exists() else 0,
        )
        save(results, arguments.output / "monitor_gpu.json")
    except (TreadleError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    console.print(checks_table(checks), costs_table(costs), sep="\n\n", soft_wrap=True)
    console.print(f"saved in {arguments.output}", soft_wrap=True)
    return 1 if any(one.passed is False for one in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
