"""What ``treadle top`` shows: a pure function of what is known."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from treadle.devices.device import DeviceEvent, DeviceKind, Severity
from treadle.monitor import DeviceView, MonitorSnapshot
from treadle.monitor.energy import JOULES_PER_WATT_HOUR
from treadle.turnstile import Member
from treadle.types import Priority

_BARS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "-"
_EVENTS = 3
_WIDE = 100
_STYLE = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "dim"}


class Sort(enum.StrEnum):
    """The order of devices."""

    INDEX = "index"
    ACTIVITY = "activity"
    MEMORY = "memory"
    POWER = "power"
    TEMPERATURE = "temperature"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the person at the keyboard has chosen."""

    sort: Sort = Sort.INDEX
    only: Priority | None = None
    """Tasks of this class only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What a task reports of itself."""

    samples_per_second: float | None
    samples_per_watt_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A member of a turnstile."""

    device: int
    member: Member
    share: float | None = None
    """Of the GPU's time since the last look, as predicted."""
    goodput: Goodput | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A model of the running node, and who waits for it."""

    model: str
    priority: str
    state: str
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """All that one frame shows."""

    snapshot: MonitorSnapshot
    tasks: Sequence[Task] = ()
    queues: Sequence[Queue] | None = None
    """None: no node is running."""
    events: Sequence[DeviceEvent] = ()
    joules: Mapping[str, float | None] = field(default_factory=dict)
    """By UUID: drawn since the first look."""
    history: Mapping[tuple[str, str], Sequence[float | None]] = field(default_factory=dict)
    """By UUID and metric: means of equal parts of the last minute, the oldest first."""


def render(frame: Frame, view: View, width: int) -> RenderableType:
    """Lay out a frame for a terminal of that many columns."""
    snapshot = frame.snapshot
    only = "all" if view.only is None else view.only.label
    parts: list[RenderableType] = [
        Text.assemble(
            ("treadle top", "bold"),
            f"  {len(snapshot.devices)} devices  sort: {view.sort}  tasks: {only}",
            ("  q quit, s sort, f filter", "dim"),
            overflow="ellipsis",
            no_wrap=True,
        )
    ]
    if snapshot.trouble:
        parts.append(_as_it_is(f"no readings: {snapshot.trouble}", "red"))
    parts += [_as_it_is(f"no other devices: {reason}", "dim") for reason in snapshot.reasons]
    parts += [
        Text(),
        _devices(frame, view, wide=width >= _WIDE),
        Text(),
        _tasks(frame, view, wide=width >= _WIDE),
    ]
    if frame.queues:
        parts += [Text(), _queues(frame.queues)]
    if frame.events:
        parts.append(Text())
    names = {device.info.uuid: f"{device.info.index}: " for device in snapshot.devices}
    for event in list(frame.events)[-_EVENTS:]:
        text = f"{names.get(event.device, '')}{event.kind}: {event.text}"
        line = _as_it_is(text, _STYLE[event.severity])
        line.overflow, line.no_wrap = "ellipsis", True
        parts.append(line)
    return Group(*parts)


def _devices(frame: Frame, view: View, *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("DEVICE", no_wrap=True, overflow="ellipsis", max_width=24 if wide else 12)
    for title in ("SM", "TENSOR", "DRAM"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("MEMORY GiB", justify="right", no_wrap=True)
    for title in ("POWER", "TEMP"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("THROTTLED", no_wrap=True)
    table.add_column("LAST MINUTE", no_wrap=True)
    if wide:
        table.add_column("POWER", no_wrap=True)
        table.add_column("DRAWN", justify="right", no_wrap=True)
    for device in _sorted(frame.snapshot.devices, view.sort):
        uuid = device.info.uuid
        sparks = [sparkline(frame.history.get((uuid, _activity_metric(device)), ()), top=1.0)]
        if wide:
            limit = device.info.power_limit_watts
            sparks.append(sparkline(frame.history.get((uuid, "power"), ()), top=limit))
            sparks.append(_watt_hours(frame.joules.get(uuid)))
        table.add_row(
            str(device.info.index),
            _as_it_is(device.info.name),
            _percent(device.value(_activity_metric(device))),
            _percent(device.value("tensor_activity")),
            _percent(device.value("dram_activity")),
            _memory(device),
            _with_unit(device.value("power"), "W"),
            _with_unit(device.value("temperature"), "C"),
            _throttled(device, wide=wide),
            *sparks,
        )
    return table


def _activity_metric(device: DeviceView) -> str:
    """What tells best how busy a device is, of what it has."""
    if device.info.kind is DeviceKind.CPU:
        return "cpu_utilization"
    return "sm_activity" if device.value("sm_activity") is not None else "gpu_utilization"


def _sorted(devices: Sequence[DeviceView], sort: Sort) -> list[DeviceView]:
    if sort is Sort.INDEX:
        return sorted(devices, key=lambda device: device.info.index)
    metrics = {Sort.MEMORY: "memory_used", Sort.POWER: "power", Sort.TEMPERATURE: "temperature"}

    def most_first(device: DeviceView) -> tuple[float, int]:
        value = device.value(metrics.get(sort) or _activity_metric(device))
        return (1.0 if value is None else -value), device.info.index

    return sorted(devices, key=most_first)


def _tasks(frame: Frame, view: View, *, wide: bool) -> RenderableType:
    shown = [t for t in frame.tasks if view.only is None or t.member.priority is view.only]
    if not shown:
        return Text("no tasks at the turnstiles", "dim")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("CLASS", no_wrap=True)
    table.add_column("TASK", no_wrap=True, overflow="ellipsis", max_width=32 if wide else 14)
    # Goodput never without the utilisation beside it, and where it fits.
    reported = any(task.goodput for task in shown)
    titles = ["PID", "GPU", "STATE", "SHARE"]
    titles += ["SAMPLES/s"] if reported else []
    titles += ["SAMPLES/Wh"] if reported and wide else []
    titles += ["GPU TIME"] if wide or not reported else []
    titles += ["WAITED", "MEM GiB"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for task in sorted(shown, key=_by_priority):
        member, goodput = task.member, task.goodput
        cells = {
            "PID": str(member.pid),
            "GPU": str(task.device),
            "STATE": state(member),
            "SHARE": _percent(task.share),
            "SAMPLES/s": _rate(goodput.samples_per_second if goodput else None),
            "SAMPLES/Wh": _rate(goodput.samples_per_watt_hour if goodput else None),
            "GPU TIME": f"{member.gpu_seconds:.1f} s",
            "WAITED": f"{member.waited_seconds + member.budget_waited_seconds:.1f} s",
            "MEM GiB": f"{member.memory_used_bytes / 2**30:.1f}",
        }
        table.add_row(
            "observer" if member.priority is None else member.priority.label,
            _as_it_is(member.name or f"#{member.index}"),
            *(cells[title] for title in titles),
        )
    return table


def _by_priority(task: Task) -> tuple[int, int, int]:
    priority = task.member.priority
    return (len(Priority) if priority is None else priority, task.device, task.member.index)


def state(member: Member) -> str:
    """What a member does, in a word."""
    if member.held:
        return "held"
    if member.waiting:
        return "waits"
    return "busy" if member.busy or member.in_flight_seconds > 0 else "idle"


def _queues(queues: Sequence[Queue]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("MODEL", no_wrap=True, overflow="ellipsis", max_width=32)
    for title in ("CLASS", "STATE"):
        table.add_column(title)
    table.add_column("WAITING", justify="right")
    for queue in queues:
        cells = (queue.model, queue.priority, queue.state, str(queue.waiting))
        table.add_row(*map(_as_it_is, cells))
    return table


def sparkline(values: Sequence[float | None], top: float | None = None) -> str:
    """A character for each value, a blank where there is none; ``top`` is a full one."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    full = max(top or 0.0, *known) or 1.0
    last = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[min(last, max(0, round(value / full * last)))]
        for value in values
    )


def _percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.0%}"


def _rate(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.1f}"


def _with_unit(value: float | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{value:.0f} {unit}"


def _watt_hours(joules: float | None) -> str:
    return _UNKNOWN if joules is None else f"{joules / JOULES_PER_WATT_HOUR:.2f} Wh"


def _memory(device: DeviceView) -> str:
    used, info = device.value("memory_used"), device.info
    total = f"{info.memory_bytes / 2**30:.0f}"
    return f"{_UNKNOWN if used is None else f'{used / 2**30:.1f}'}/{total}"


def _throttled(device: DeviceView, *, wide: bool) -> str:
    reasons = ("power", "thermal", "other")
    values = {reason: device.value(f"throttled_{reason}") for reason in reasons}
    if all(value is None for value in values.values()):
        return _UNKNOWN
    held = [reason for reason, value in values.items() if value]
    if len(held) > 1 and not wide:
        return f"{held[0]} +{len(held) - 1}"
    return " ".join(held) or "no"


def _as_it_is(text: str, style: str = "") -> Text:
    """Others' words: no markup, and nothing that would steer the terminal."""
    return Text("".join(c if c.isprintable() else "?" for c in text), style)
