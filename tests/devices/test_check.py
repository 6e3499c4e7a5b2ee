"""The check of a device finds what it is there to find."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from treadle.clock import ManualClock
from treadle.devices.catalogue import FunctionSource, SourceSpec
from treadle.devices.check import check_device
from treadle.devices.device import (
    DeviceError,
    DeviceEvent,
    DeviceInfo,
    DeviceKind,
    DeviceProcess,
    Link,
    Mechanism,
    Reading,
    Severity,
    Source,
)
from treadle.devices.mechanisms import none_available

GOOD = DeviceInfo(
    uuid="D-1", index=0, name="made up", kind=DeviceKind.SIMULATED, cores=1, memory_bytes=1
)


class Made:
    """A device of which a test may make anything."""

    def __init__(self) -> None:
        self.info = GOOD
        self.made_mechanisms: Sequence[Mechanism] = none_available("made up")
        self.made_links: Sequence[Link] = ()
        self.made_processes: Sequence[DeviceProcess] = ()
        self.made_events: Sequence[DeviceEvent] = ()
        self.made_sources: list[Source] = []
        self.closed = 0
        self.may_be_closed = 100
        self.clock = ManualClock()
        self.add("power", lambda now: [Reading("power", 1.0, now, 0.0)])

    def add(self, metrics: str, read: Callable[[float], Sequence[Reading]], name: str = "") -> None:
        spec = SourceSpec(name or f"made.{metrics}", tuple(metrics.split()), 0.1, 1e-6)
        self.made_sources.append(FunctionSource(spec, lambda: read(self.clock.now())))

    def mechanisms(self) -> Sequence[Mechanism]:
        return self.made_mechanisms

    def links(self) -> Sequence[Link]:
        return self.made_links

    def sources(self) -> Sequence[Source]:
        return self.made_sources

    def processes(self) -> Sequence[DeviceProcess]:
        return self.made_processes

    def events(self) -> Sequence[DeviceEvent]:
        return self.made_events

    def close(self) -> None:
        self.closed += 1
        if self.closed > self.may_be_closed:
            raise RuntimeError("closed already")

    def check(self) -> None:
        check_device(self, between=lambda: self.clock.advance(1.0))


def test_a_good_one_passes_and_is_closed() -> None:
    made = Made()
    made.check()
    assert made.closed == 2


def of(metric: str, value: Any, window: float = 0.0, reason: str = "") -> Any:
    """Something to add: a source that always says the same."""
    return metric, lambda now: [Reading(metric, value, now, window, reason)]


def raises(error: Exception) -> Callable[[float], Sequence[Reading]]:
    def read(now: float) -> Sequence[Reading]:
        raise error

    return read


# a source to add -> what is found
BAD_SOURCES = [
    (of("gpu_utilization", 1.5), "gpu_utilization is 1.5 ratio; allowed: 0 to 1"),
    (of("memory_used", -1.0), "memory_used is -1 bytes"),
    (of("memory_used", float(0xFFFFFFFF)), "stands for 'not available'"),
    (of("temperature", math.nan), "temperature is nan; allowed: None with a reason"),
    (of("temperature", 4_000_000.0), "celsius; allowed: -50 to 150"),
    (of("temperature", None), "temperature has neither value nor reason"),
    (of("energy", 1.0, 0.1), "energy is a counter and has a window"),
    (of("temperature", 40.0, -0.1), "a window of -0.1 s"),
    (("energy", lambda now: [Reading("energy", 9.0 - now, now, 0.0)]), "falls from 9 to 8"),
    (("energy", lambda now: [Reading("energy", 1.0, -now, 0.0)]), "its time goes back by 1 s"),
    (("energy", lambda now: [Reading("energy", 1.0, math.inf, 0.0)]), "was sampled at inf"),
    (("energy", lambda now: []), "says nothing of energy, which it declares"),
    (("energy", lambda now: [Reading("sm_clock", 1.0, now, 0.0)]), "sm_clock is not declared"),
    (of("happiness", 1.0), "declares 'happiness', which METRICS does not know"),
    (of("power", 1.0), "power comes from both made.power and made.power"),
    (("", lambda now: []), "declares no metric"),
    (("energy", raises(DeviceError("no answer"))), "made.energy fails: no answer"),
    (("energy", raises(ZeroDivisionError())), "raises ZeroDivisionError"),
]


@pytest.mark.parametrize(("source", "found"), BAD_SOURCES, ids=[found for _, found in BAD_SOURCES])
def test_a_bad_source_is_found(source: Any, found: str) -> None:
    made = Made()
    made.add(*source)
    with pytest.raises(DeviceError) as caught:
        made.check()
    assert found in str(caught.value)


def event(**changes: Any) -> DeviceEvent:
    return replace(DeviceEvent(0.0, "D-1", "xid", Severity.ERROR, "text"), **changes)


# attribute, value -> what is found
BAD_PARTS = [
    ("info", replace(GOOD, uuid=""), "info.uuid is empty"),
    ("info", replace(GOOD, cores=0), "info.cores is 0"),
    ("info", replace(GOOD, memory_bytes=-1), "info.memory_bytes is -1"),
    ("info", replace(GOOD, numa_node=-1), "info.numa_node is -1"),
    ("info", replace(GOOD, power_limit_watts=math.nan), "info.power_limit_watts is nan"),
    ("info", replace(GOOD, host_cores=(1, 0)), "info.host_cores is not ascending"),
    ("made_mechanisms", none_available("x")[1:], "mechanisms: allowed, once each"),
    ("made_mechanisms", none_available(""), "mechanism MPS: no reason"),
    ("made_links", (Link("D-1", "NVLink"),), "a link to 'D-1'"),
    ("made_processes", (DeviceProcess(0, "p", 1, 0.0),), "are no pids"),
    ("made_processes", (DeviceProcess(None, "p", 1, 0.0),), "missing without a reason"),
    ("made_processes", (DeviceProcess(1, "p", 1, 50.0),), "process 1: SM activity 50.0"),
    ("made_processes", (DeviceProcess(1, "p", -1, 0.0),), "process 1: -1 bytes"),
    ("made_events", (event(kind="party"),), "an event of kind 'party'"),
    ("made_events", (event(device="D-2"),), "an event of 'D-2'"),
    ("made_events", (event(text=""),), "without a text"),
    ("made_events", (event(at=math.nan),), "at nan"),
    ("may_be_closed", 1, "to close it a second time raises"),
]


@pytest.mark.parametrize(("part", "value", "found"), BAD_PARTS, ids=[row[2] for row in BAD_PARTS])
def test_a_bad_part_is_found(part: str, value: Any, found: str) -> None:
    made = Made()
    setattr(made, part, value)
    with pytest.raises(DeviceError) as caught:
        made.check()
    assert found in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    made = Made()
    made.info = replace(GOOD, cores=0, uuid="")
    with pytest.raises(DeviceError) as caught:
        made.check()
    assert str(caught.value).count("\n- ") >= 2
