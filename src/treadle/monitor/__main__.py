"""The helper program: looks at the devices, and ends when its parent does.

Its argument is a ``Setup``: the descriptors of a control socket and of the memory that it is to
lay out, and what to look for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from treadle.child import become_child
from treadle.clock import SystemClock
from treadle.devices.device import DeviceEvent, MonitoredDevice
from treadle.monitor.directory import Happened, Setup, Started, StartFailed, encode
from treadle.monitor.ring import Writer
from treadle.monitor.sampler import Sampler, plan

_LONGEST_TEXT = 2000


def find(spec: str) -> tuple[Sequence[MonitoredDevice], Sequence[str]]:
    """Call ``module:function``, or ``module:function=argument``."""
    place, equals, argument = spec.partition("=")
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    devices, reasons = function(argument) if equals else function()
    return list(devices), [str(reason) for reason in _texts(reasons)]


def _texts(reasons: Any) -> list[object]:
    """Reasons as lines, whether they have names or not."""
    if isinstance(reasons, dict):
        return [f"{name}: {reason}" for name, reason in reasons.items()]
    return list(reasons)


def main(setup: Setup) -> int:
    """Sample until the parent hangs up."""
    control = socket.socket(fileno=setup.socket)
    control.setblocking(False)

    def tell(event: DeviceEvent) -> None:
        # A parent that does not read misses events: figures matter more.
        with contextlib.suppress(BlockingIOError):
            control.send(encode(Happened(replace(event, text=event.text[:_LONGEST_TEXT]))))

    try:
        devices, reasons = find(setup.devices)
        directory, sources = plan(
            devices, reasons, left_out=setup.left_out, tick_seconds=setup.tick_seconds
        )
        writer = Writer(setup.memory, directory)
    except Exception as error:  # devices are foreign code; the parent tells the reason
        text = f"{type(error).__name__}: {error}"
        control.send(encode(StartFailed(text[:_LONGEST_TEXT])))
        return 1
    clock = SystemClock()
    sampler = Sampler(
        devices,
        sources,
        writer,
        folder=Path(setup.turnstiles),
        clock=clock,
        on_event=tell,
        left_out=setup.left_out,
        tick_seconds=setup.tick_seconds,
    )
    writer.ready()
    control.send(encode(Started()))
    sampler.gate.start()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        due = sampler.step()
        if poll.poll(max(0.0, due - clock.now()) * 1000) and not control.recv(64):
            return 0  # the parent has hung up


if __name__ == "__main__":
    become_child()
    try:
        code = main(msgspec.json.decode(sys.argv[1], type=Setup))
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # the parent has gone
    sys.stdout.flush()
    os._exit(code)  # a driver's threads must not keep it
