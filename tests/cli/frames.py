"""Frames for a terminal, and what comes out of them."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from treadle.cli.topview import Frame, Queue, Task, View, render
from treadle.devices.device import DeviceEvent, DeviceInfo, DeviceKind, Reading, Severity
from treadle.monitor import DeviceView, MonitorSnapshot
from treadle.turnstile import Member
from treadle.types import Priority


def device(index: int = 0, name: str = "NVIDIA H200", **values: float | None) -> DeviceView:
    """A device with these readings."""
    return DeviceView(
        info=DeviceInfo(
            uuid=f"GPU-{index}",
            index=index,
            name=name,
            kind=DeviceKind.NVIDIA,
            cores=132,
            memory_bytes=141 << 30,
            power_limit_watts=700.0,
        ),
        readings={
            metric: Reading(metric, value, 1.0, 0.1, "" if value is not None else "missing")
            for metric, value in values.items()
        },
        sources=dict.fromkeys(values, "nvml"),
    )


def busy(index: int = 0) -> DeviceView:
    """A device with all that is shown."""
    return device(
        index,
        sm_activity=0.93,
        tensor_activity=0.41,
        dram_activity=0.55,
        memory_used=97.5 * 2**30,
        power=655.0 + index,
        temperature=71.0 - index,
        throttled_power=1.0,
        throttled_thermal=0.0,
        throttled_other=0.0,
    )


_MEMBER = Member(
    index=0,
    generation=1,
    name="",
    pid=1234567,
    priority=Priority.NORMAL,
    busy=False,
    waiting=False,
    held=False,
    launches=10,
    copies=0,
    predicted_seconds=12.5,
    measured_seconds=0.0,
    samples=0,
    in_flight_seconds=0.0,
    running_since_ns=None,
    marks=0,
    marked_seconds=0.0,
    waits=0,
    waited_seconds=1.0,
    budget_waits=0,
    budget_waited_seconds=0.5,
    turns=0,
    duty_passes=0,
    memory_used_bytes=3 << 30,
    memory_limit_bytes=None,
    memory_failures=0,
)


def task(name: str, priority: Priority | None, device: int = 0, **changes: bool) -> Task:
    member = replace(_MEMBER, name=name, priority=priority, **changes)
    return Task(device=device, member=member, share=0.25)


def full_frame() -> Frame:
    """A frame with something of everything."""
    return Frame(
        snapshot=MonitorSnapshot(at=1.0, devices=tuple(busy(i) for i in range(8))),
        tasks=[
            task("training-with-a-very-long-name-that-goes-on", Priority.BACKGROUND, waiting=True),
            task("server", Priority.CRITICAL, 3, busy=True),
            task("notebook", Priority.NORMAL, 1),
        ],
        queues=[Queue(model="text-detector", priority="critical", state="ready", waiting=12)],
        events=[DeviceEvent(1.0, "GPU-3", "xid", Severity.ERROR, "Xid 31: " + "a fault " * 20)],
        joules={"GPU-0": 36_000.0},
        history={
            (f"GPU-{i}", metric): [None, *[full * n / 10 for n in range(11)]]
            for i in range(8)
            for metric, full in (("sm_activity", 1.0), ("power", 700.0))
        },
    )


def lines(frame: Frame, view: View | None = None, width: int = 80) -> list[str]:
    """The frame as a terminal without colour would show it."""
    file = io.StringIO()
    console = Console(file=file, width=width, no_color=True, force_terminal=False, highlight=False)
    console.print(render(frame, view or View(), width))
    return file.getvalue().splitlines()
