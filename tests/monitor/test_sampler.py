"""The sampler reads each source in its turn, and finds out who goes past the turnstile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.monitor.fakes import FakeDevice, FakeSource
from tests.monitor.pages import WrittenPage

from treadle.clock import ManualClock
from treadle.devices.device import DeviceEvent, DeviceProcess
from treadle.monitor import gate, ring
from treadle.monitor.directory import GATE
from treadle.monitor.ring import Reader, Writer
from treadle.monitor.sampler import Sampler, plan


class World:
    """A sampler over a device, on a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(100.0)
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
        )
        writer.ready()
        self.reader = Reader(self.memory)

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
