"""The sampler reads each source in its turn, and finds out who goes past the turnstile."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.monitor.fakes import FakeDevice, FakeSource
from tests.monitor.pages import WrittenPage

from treadle.clock import ManualClock
from treadle.devices.device import (
    DeviceEvent,
    DeviceGoneError,
    DeviceProcess,
    Reading,
    Severity,
)
from treadle.monitor import gate, ring
from treadle.monitor.directory import GATE
from treadle.monitor.ring import Reader, Writer
from treadle.monitor.sampler import PROCESSES_SECONDS, Sampler, numbers_of, plan
from treadle.monitor.snapshot import views
from treadle.monitor.spending import CpuTime


class World:
    """A sampler over a device, on a clock that a test moves; what work takes, a test says."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(100.0)
        self.used = 0.0
        self.fast = FakeSource(0, "fake.fast", ("power",), refresh_seconds=0.1)
        self.slow = FakeSource(0, "fake.slow", ("temperature",), refresh_seconds=1.0)
        self.device = FakeDevice(0, [self.fast, self.slow])
        self.events: list[DeviceEvent] = []
        directory, sources = plan([self.device], [])
        self.memory = ring.create()
        writer = Writer(self.memory, directory)
        self.sampler = Sampler(
            [self.device],
            sources,
            writer,
            folder=folder,
            clock=self.clock,
            on_event=self.events.append,
            cpu=CpuTime(thread=lambda: self.used, process=lambda: self.used),
        )
        writer.ready()
        self.reader = Reader(self.memory)

    def latest(self, metric: str) -> Reading | None:
        for number, one in enumerate(self.reader.directory.series):
            if one.metric == metric:
                return self.reader.latest(number)
        return None

    def run(self, seconds: float) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            due = self.sampler.step()
            assert due > self.clock.now()
            self.clock.advance(due - self.clock.now())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "pages")
    yield world
    os.close(world.memory)


def test_each_source_is_read_at_its_own_pace(world: World) -> None:
    world.run(10.0)
    assert world.fast.reads == pytest.approx(100, abs=3)
    assert world.slow.reads == pytest.approx(10, abs=2)
    assert world.reader.heartbeat == pytest.approx(world.clock.now(), abs=0.2)
    assert world.reader.doing is None


def test_a_read_that_takes_more_than_was_claimed_is_done_less_often(world: World) -> None:
    def dearly() -> Sequence[Reading]:
        world.used += 0.01
        return [Reading("power", 1.0, world.clock.now(), 0.0)]

    world.fast.read = dearly  # type: ignore[method-assign]
    world.run(10.0)
    before, used = world.slow.reads, world.used
    world.run(60.0)
    assert (world.used - used) / 60.0 == pytest.approx(0.01, rel=0.1)
    assert world.slow.reads - before == pytest.approx(60, abs=2)
    fast = world.reader.pace(0)
    assert fast.interval_seconds == pytest.approx(1.0, rel=0.05)
    assert fast.cost_seconds == pytest.approx(0.01, rel=0.01)
    assert world.reader.pace(1).interval_seconds == 1.0


def test_a_figure_that_is_read_less_often_is_stale_later(world: World) -> None:
    def dearly() -> Sequence[Reading]:
        world.used += 0.03
        return [Reading("power", 1.0, world.clock.now(), 0.0)]

    def power(age: float) -> float | None:
        latest = world.latest("power")
        assert latest is not None
        (view,) = views(world.reader, latest.sampled_at + age, "", ())
        return view.value("power")

    world.run(2.0)
    assert (power(2.9), power(3.1)) == (100.0, None)
    world.fast.read = dearly  # type: ignore[method-assign]
    world.run(120.0)
    assert world.reader.pace(0).interval_seconds == pytest.approx(3.0, rel=0.05)
    assert (power(14.0), power(16.0)) == (1.0, None)


def test_listing_processes_takes_a_tenth_of_the_budget(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)
    looks: list[float] = []

    def dearly() -> Sequence[DeviceProcess]:
        looks.append(world.clock.now())
        world.used += 0.02
        return ()

    monkeypatch.setattr(world.device, "processes", dearly)
    world.run(100.0)
    assert looks[1] - looks[0] == pytest.approx(PROCESSES_SECONDS, abs=1.0)  # as is claimed
    assert looks[-1] - looks[-2] == pytest.approx(20.0, abs=1.5)
    page.close()


def test_a_process_that_goes_past_the_turnstile_is_told_of_and_when_it_is_no_more(
    world: World, tmp_path: Path
) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    stranger = DeviceProcess(4242, "stranger", None, None, "a fake")
    world.device.running = [stranger, DeviceProcess(os.getpid(), "member", None, None, "a fake")]
    world.run(10.0)
    assert world.events == []  # nobody sits there: nobody is passed by
    page.seat(0, 0)
    world.run(20.0)
    (event,) = world.events
    assert (event.kind, event.device) == ("ungated", "FAKE-0")
    assert "4242 (stranger)" in event.text
    world.device.running.remove(stranger)
    world.run(10.0)
    assert [event.kind for event in world.events] == ["ungated", "ungated-end"]
    page.close()


def test_a_process_on_its_way_in_or_out_is_not_accused(world: World, tmp_path: Path) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)
    for pid in (4242, 4243, 4244):  # each is seen once without its seat
        world.device.running = [DeviceProcess(pid, "passer-by", None, None, "a fake")]
        world.run(5.0)
    assert world.events == []
    page.close()


def test_the_server_of_mps_is_not_accused(world: World, tmp_path: Path) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)
    world.device.running = [DeviceProcess(4242, "nvidia-cuda-mps", None, None, "a fake")]
    world.run(20.0)
    assert world.events == []
    page.close()


def test_a_member_in_a_container_is_known_by_its_number_there(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0, pid=7)
    numbers = {4242: frozenset({4242, 7}), 4243: frozenset({4243, 8})}
    monkeypatch.setattr("treadle.monitor.sampler.numbers_of", numbers.__getitem__)
    world.device.running = [DeviceProcess(pid, "x", None, None, "a fake") for pid in numbers]
    world.run(20.0)
    (event,) = world.events
    assert "process 4243" in event.text
    page.close()


def test_a_process_has_its_number_here_and_one_that_has_ended_has_too() -> None:
    assert os.getpid() in numbers_of(os.getpid())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert numbers_of(ended.pid) == {ended.pid}


def test_who_comes_between_two_looks_is_not_taken_for_dead(world: World, tmp_path: Path) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)
    page.page.record[1].state, page.page.members[1] = 2, 1 << 1  # it died: nobody holds its lock
    world.run(1.5)
    page.seat(2, 0)
    assert world.sampler.gate.pages["FAKE-0"].read(0).members == 2
    page.close()


def test_a_device_that_has_said_that_it_is_gone_is_not_told_of_again(world: World) -> None:
    gone = DeviceEvent(100.0, "FAKE-0", "gone", Severity.ERROR, "it has fallen off the bus")

    def fail() -> Sequence[Reading]:
        raise DeviceGoneError("it has fallen off the bus")

    world.run(2.0)
    events = [gone]
    world.device.events = lambda: [events.pop()] if events else []  # type: ignore[method-assign]
    world.run(1.2)
    world.fast.read = world.slow.read = fail  # type: ignore[method-assign]
    world.run(3.0)
    assert world.events == [gone]
    latest = world.latest("power")
    assert latest is not None
    assert latest.value is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_no_value(world: World, value: float) -> None:
    world.fast.read = lambda: [Reading("power", value, 100.0, 0.0)]  # type: ignore[method-assign]
    world.run(1.0)
    assert world.latest("power") == Reading(
        "power", None, 100.0, 0.0, f"the device answers {value}"
    )


@pytest.mark.parametrize(
    "answer",
    [None, [("power", 1.0)], [Reading("power", "N/A", 1.0, 0.0)]],  # type: ignore[arg-type]
)
def test_an_answer_that_is_none_fails_its_source_only(world: World, answer: object) -> None:
    world.fast.read = lambda: answer  # type: ignore[method-assign,assignment,return-value]
    world.run(3.0)
    assert [event.kind for event in world.events] == ["source-failed"]
    failed = world.latest("power")
    assert failed is not None
    assert "Error" in failed.reason
    assert world.slow.reads > 1


@pytest.mark.parametrize("name", ["events", "processes"])
def test_a_device_whose_own_code_fails_is_told_of_once_and_read_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    page = WrittenPage(tmp_path / "pages", "FAKE-0")
    page.seat(0, 0)

    def fail() -> Sequence[DeviceEvent]:
        raise ValueError("not UTF-8")

    monkeypatch.setattr(world.device, name, fail)
    world.run(12.0)
    (event,) = world.events
    assert (event.kind, event.device) == ("source-failed", "FAKE-0")
    assert f"{name} cannot be read: ValueError: not UTF-8" in event.text
    assert world.fast.reads > 100
    page.close()


def test_a_driver_that_is_slow_for_all_keeps_nobody_from_looking_around(world: World) -> None:
    def slowly() -> Sequence[Reading]:
        world.clock.advance(1.5)
        if world.clock.now() > 1000.0:
            pytest.fail("it reads for ever")
        return [Reading("power", 1.0, world.clock.now(), 0.0)]

    looks: list[float] = []
    world.fast.read = world.slow.read = slowly  # type: ignore[method-assign]
    world.device.events = lambda: looks.append(world.clock.now()) or ()  # type: ignore[method-assign,func-returns-value]
    world.run(20.0)
    assert len(looks) > 3


def test_all_devices_have_the_turnstiles_figures_but_those_that_bring_their_own() -> None:
    own = FakeDevice(1, [FakeSource(1, "replay.turnstile", gate.METRICS)])
    directory, _ = plan([FakeDevice(0), own], ["no more"])
    found = [(one.device, one.metric) for one in directory.series if one.source == GATE]
    assert found == [("FAKE-0", metric) for metric in gate.METRICS]
    assert directory.reasons == ("no more",)


def test_sources_that_are_left_out_have_no_series() -> None:
    directory, sources = plan([FakeDevice(0)], [], left_out=[("FAKE-0", "fake.power")])
    assert [source.name for source in sources] == ["fake.temperature", "fake.memory"]
    assert "power" not in {one.metric for one in directory.series}


@pytest.mark.parametrize(("name", "budget"), [("fake.slow-read", 0.01), ("fake.gpm", 0.02)])
def test_reads_stay_within_their_budget(name: str, budget: float) -> None:
    dear = FakeSource(0, name, ("power",), refresh_seconds=0.1, cost_seconds=0.01)
    directory, _ = plan([FakeDevice(0, [dear])], [])
    (entry,) = directory.sources
    assert entry.cost_seconds / entry.interval_seconds == pytest.approx(budget)
