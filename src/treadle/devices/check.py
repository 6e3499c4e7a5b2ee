"""A check for whoever implements a device: does it keep what the interface promises?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    MonitoredDevice,
    Reading,
    Severity,
    Source,
)
from treadle.devices.mechanisms import MECHANISMS
from treadle.devices.metrics import METRICS, MetricKind

EVENT_KINDS = frozenset(
    {
        "xid",
        "ecc",
        "throttle-start",
        "throttle-end",
        "gone",
        "partition",
        "process-start",
        "process-end",
        "source-failed",
        "source-back",
    }
)
_RANGES = {
    "ratio": (0.0, 1.0),
    "bytes": (0.0, 2.0**63),
    "watts": (0.0, 1e5),
    "joules": (0.0, 1e15),
    "celsius": (-50.0, 150.0),
    "hertz": (0.0, 1e11),
    "seconds": (0.0, 1e12),
    "1": (0.0, 2.0**53),
}
_READS = 3


def check_device(device: MonitoredDevice, between: Callable[[], object] | None = None) -> None:
    """Hold a device against its interface. It must be well, and is closed at the end.

    Args:
        device: The device.
        between: Called between two reads of all sources, to let time pass; sleeps for 0.15 s
            unless given.

    Raises:
        DeviceError: If it breaks its word; the text has a line for each way in which it does.
    """
    between = between or (lambda: time.sleep(0.15))
    problems = [*_info(device), *_declared(device), *_readings(device, between)]
    problems += [*_mechanisms(device), *_others(device), *_closing(device)]
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise DeviceError(f"the device does not keep its interface:\n{listed}")


def _info(device: MonitoredDevice) -> Iterator[str]:
    info = device.info
    for name, text in (("uuid", info.uuid), ("name", info.name)):
        if not text:
            yield f"info.{name} is empty"
    if info.index < 0:
        yield f"info.index is {info.index}"
    if info.cores < 1:
        yield f"info.cores is {info.cores}"
    if info.memory_bytes < 1:
        yield f"info.memory_bytes is {info.memory_bytes}"
    if info.numa_node is not None and info.numa_node < 0:
        yield f"info.numa_node is {info.numa_node}; allowed: None where there is none"
    if info.power_limit_watts is not None and not info.power_limit_watts > 0:
        yield f"info.power_limit_watts is {info.power_limit_watts}"
    if list(info.host_cores) != sorted(set(info.host_cores)):
        yield "info.host_cores is not ascending"
    if device.info != info:
        yield "info changes from one look to the next"


def _declared(device: MonitoredDevice) -> Iterator[str]:
    seen: dict[str, str] = {}
    names: set[str] = set()
    for source in device.sources():
        if source.name in names or not source.name:
            yield f"two sources are named {source.name!r}, or one has no name"
        names.add(source.name)
        if not source.metrics:
            yield f"{source.name} declares no metric"
        if not (0 < source.refresh_seconds < math.inf and 0 < source.cost_seconds < math.inf):
            yield f"{source.name}: refresh and cost must be above 0"
        for metric in source.metrics:
            if metric not in METRICS:
                yield f"{source.name} declares {metric!r}, which METRICS does not know"
            if metric in seen:
                yield f"{metric} comes from both {seen[metric]} and {source.name}"
            seen[metric] = source.name


def _readings(device: MonitoredDevice, between: Callable[[], object]) -> Iterator[str]:
    last: dict[str, Reading] = {}
    for number in range(_READS):
        if number:
            between()
        for source in device.sources():
            try:
                readings = source.read()
            except DeviceError as error:
                yield f"{source.name} fails: {error}"
            except Exception as error:  # the point is to find what is not a DeviceError
                yield f"{source.name} raises {error!r}; allowed: DeviceError"
            else:
                yield from _source(source, readings, last)


def _source(source: Source, readings: Sequence[Reading], last: dict[str, Reading]) -> Iterator[str]:
    told = {reading.metric for reading in readings}
    for metric in sorted(set(source.metrics) - told):
        yield f"{source.name} says nothing of {metric}, which it declares"
    for reading in readings:
        where = f"{source.name}: {reading.metric}"
        if reading.metric not in source.metrics:
            yield f"{where} is not declared"
        before = last.get(reading.metric)
        if not math.isfinite(reading.sampled_at):
            yield f"{where} was sampled at {reading.sampled_at}"
        elif before is not None and reading.sampled_at < before.sampled_at:
            yield f"{where}: its time goes back by {before.sampled_at - reading.sampled_at:g} s"
        if not 0 <= reading.window_seconds < math.inf:
            yield f"{where}: a window of {reading.window_seconds} s"
        yield from _value(where, reading, before)
        # A counter is held against its last value, over gaps.
        if reading.value is None and before is not None:
            reading = reading._replace(value=before.value)  # noqa: PLW2901
        last[reading.metric] = reading


def _value(where: str, reading: Reading, before: Reading | None) -> Iterator[str]:
    value, metric = reading.value, METRICS.get(reading.metric)
    if value is None:
        if not reading.reason:
            yield f"{where} has neither value nor reason"
        return
    if not math.isfinite(value):
        yield f"{where} is {value}; allowed: None with a reason"
        return
    if metric is None:
        return
    lowest, highest = _RANGES[metric.unit]
    if not lowest <= value <= highest:
        yield f"{where} is {value:g} {metric.unit}; allowed: {lowest:g} to {highest:g}"
    if value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF):
        yield f"{where} is {value:g}, which stands for 'not available'"
    if metric.kind is MetricKind.COUNTER:
        if reading.window_seconds:
            yield f"{where} is a counter and has a window"
        if before is not None and before.value is not None and value < before.value:
            yield f"{where} is a counter and falls from {before.value:g} to {value:g}"


def _mechanisms(device: MonitoredDevice) -> Iterator[str]:
    found = device.mechanisms()
    if sorted(one.name for one in found) != sorted(MECHANISMS):
        yield f"mechanisms: allowed, once each: {', '.join(MECHANISMS)}"
    for one in found:
        if not one.reason:
            yield f"mechanism {one.name}: no reason"


def _others(device: MonitoredDevice) -> Iterator[str]:
    for link in device.links():
        if not link.peer or not link.kind or link.peer == device.info.uuid:
            yield f"a link to {link.peer!r} of kind {link.kind!r}"
    try:
        processes = device.processes()
    except DeviceError as error:
        yield f"processes: {error}"
        processes = ()
    pids = [one.pid for one in processes if one.pid is not None]
    if len(pids) != len(set(pids)) or any(pid < 1 for pid in pids):
        yield f"processes: {pids} are no pids, or one is there twice"
    for one in processes:
        if None in (one.pid, one.memory_bytes, one.sm_activity) and not one.reason:
            yield f"process {one.pid}: a figure is missing without a reason"
        if one.sm_activity is not None and not 0 <= one.sm_activity <= 1:
            yield f"process {one.pid}: SM activity {one.sm_activity}"
        if one.memory_bytes is not None and one.memory_bytes < 0:
            yield f"process {one.pid}: {one.memory_bytes} bytes"
    for event in device.events():
        yield from check_event(event, device.info.uuid)


def check_event(event: DeviceEvent, uuid: str) -> Iterator[str]:
    """What is wrong with an event of the device of that UUID."""
    if event.kind not in EVENT_KINDS:
        yield f"an event of kind {event.kind!r}; allowed: {', '.join(sorted(EVENT_KINDS))}"
    if event.device != uuid:
        yield f"an event of {event.device!r}"
    if not event.text:
        yield f"an event of kind {event.kind} without a text"
    if not isinstance(event.severity, Severity) or not math.isfinite(event.at):
        yield f"an event of kind {event.kind} with severity {event.severity!r} at {event.at}"


def _closing(device: MonitoredDevice) -> Iterator[str]:
    for time_ in ("", " a second time"):
        try:
            device.close()
        except Exception as error:  # whatever it is, it must not come
            yield f"to close it{time_} raises {error!r}"
