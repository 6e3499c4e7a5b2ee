"""``treadle devices``: what there is to run on, and which mechanisms work here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from treadle.cli.show import print_json
from treadle.devices.device import DeviceError, DeviceInfo, Link, Mechanism, MonitoredDevice
from treadle.devices.find import find_devices
from treadle.devices.mechanisms import Host
from treadle.turnstile import gate_library_path

_COLUMNS = ("#", "DEVICE", "CORES", "MEMORY", "DRIVER", "MIG", "NUMA", "HOST CORES", "LINKS")
_RIGHT = ("#", "CORES", "MEMORY", "NUMA")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A device as it is shown."""

    info: DeviceInfo
    links: Sequence[Link]
    mechanisms: Sequence[Mechanism]
    reason: str
    """Why its links or mechanisms are not known; empty if they are."""


def run(*, as_json: bool) -> None:
    """Print the devices of this machine and the mechanisms of each."""
    devices, reasons = find_devices(host=Host(gate=gate_library_path))
    seen = [_look(device) for device in devices]
    if as_json:
        print_json({"devices": [_plain(one) for one in seen], "reasons": reasons})
        return
    console = Console(markup=False, highlight=False)  # names and reasons are others' words
    console.print(_table(seen))
    for reason in reasons:
        console.print(Text(f"\n{reason}", "yellow"))
    for alike in _alike(seen):
        console.print(Text(f"\n{', '.join(_title(one) for one in alike)}", "bold"))
        if alike[0].reason:
            console.print(Text(alike[0].reason, "yellow"))
        console.print(_mechanisms(alike[0].mechanisms))


def _look(device: MonitoredDevice) -> _Seen:
    try:
        reasons: list[str] = []
        links: Sequence[Link] = _ask(device.links, reasons)
        return _Seen(device.info, links, _ask(device.mechanisms, reasons), "; ".join(reasons))
    finally:
        device.close()


def _ask(question: Callable[[], Sequence[Any]], reasons: list[str]) -> Sequence[Any]:
    try:
        return question()
    except DeviceError as error:
        reasons.append(str(error))
        return ()


def _alike(seen: Sequence[_Seen]) -> list[list[_Seen]]:
    """Devices with the same mechanisms, together: the usual machine has equal GPUs."""
    groups: dict[tuple[Any, ...], list[_Seen]] = {}
    for one in seen:
        groups.setdefault((one.info.kind, one.reason, *one.mechanisms), []).append(one)
    return list(groups.values())


def _title(one: _Seen) -> str:
    return f"{one.info.index} {one.info.name}"


def _table(seen: Sequence[_Seen]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in _COLUMNS:
        table.add_column(
            title, justify="right" if title in _RIGHT else "left", no_wrap=title == "#"
        )
    indices = {one.info.uuid: one.info.index for one in seen}
    for one in seen:
        info = one.info
        table.add_row(
            str(info.index),
            info.name,
            str(info.cores),
            f"{info.memory_bytes / 2**30:.1f} GiB",
            info.driver or "-",
            info.partition or "-",
            "-" if info.numa_node is None else str(info.numa_node),
            _ranges(info.host_cores) or "-",
            _links(one.links, indices) or "-",
        )
    return table


def _mechanisms(mechanisms: Sequence[Mechanism]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("MECHANISM", no_wrap=True)
    table.add_column("HERE", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    for one in mechanisms:
        style = "green" if one.available else "dim"
        table.add_row(one.name, Text("yes" if one.available else "no", style), Text(one.reason))
    return table


def _links(links: Sequence[Link], indices: Mapping[str, int]) -> str:
    """A line for each kind of link, with the devices that it leads to: ``1-7: NVLink x18``."""
    kinds: dict[str, list[str]] = {}
    for link in links:
        kinds.setdefault(link.kind, []).append(link.peer)
    lines = []
    for kind, peers in kinds.items():
        known = sorted(indices[peer] for peer in peers if peer in indices)
        others = [peer for peer in peers if peer not in indices]
        lines.append(f"{', '.join(filter(None, [_ranges(known), *others]))}: {kind}")
    return "\n".join(lines)


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as Linux writes them: ``0-3,8``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _plain(one: _Seen) -> dict[str, Any]:
    return {
        **asdict(one.info),
        "links": [asdict(link) for link in one.links],
        "mechanisms": [asdict(mechanism) for mechanism in one.mechanisms],
        "reason": one.reason,
    }
