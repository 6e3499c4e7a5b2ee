"""Recordings: what goes in comes out, also of a file that was cut short."""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.monitor.fakes import FakeDevice

from treadle.clock import ManualClock
from treadle.devices.device import DeviceEvent, DeviceGoneError, Severity
from treadle.monitor import ring
from treadle.monitor.directory import Directory, Series
from treadle.monitor.recording import VERSION, Recorder, RecordingError, read
from treadle.monitor.replay import devices_from, replay, seconds_of
from treadle.monitor.ring import Reader, Writer

SERIES = (
    Series("FAKE-0", "power", "fake.power", 0.1),
    Series("FAKE-0", "fan_speed", "fake.fan", 1.0),
    Series("FAKE-1", "power", "fake.power", 0.1),
)
EVENT = DeviceEvent(103.0, "FAKE-0", "xid", Severity.ERROR, "Xid 31")


class Source:
    """Rings that a test writes."""

    def __init__(self) -> None:
        self._memory = ring.create()
        devices = (FakeDevice(0).info, FakeDevice(1).info)
        self.writer = Writer(self._memory, Directory(devices, (), SERIES))
        self.writer.ready()
        self.reader = Reader(self._memory)

    def second(self, number: int) -> None:
        """What is read in a second."""
        for tenth in range(10):
            at = 100 + number + tenth / 10
            self.writer.write(0, at, 200.0 + number, 0.1)
            self.writer.write(2, at, 300.0 + number, 0.1)
        self.writer.write(1, 100.0 + number, None, 0.0, "it has no fan")

    def close(self) -> None:
        os.close(self._memory)


@pytest.fixture
def source() -> Iterator[Source]:
    source = Source()
    yield source
    source.close()


@pytest.fixture
def file(source: Source, tmp_path: Path) -> Path:
    """Five seconds."""
    path = tmp_path / "five.rec"
    with Recorder(path) as recorder:
        for number in range(5):
            source.second(number)
            recorder.take(source.reader, [EVENT] if number == 3 else [])
    return path


def test_what_was_read_comes_out_again(file: Path) -> None:
    recording = read(file)
    assert recording.missing == ""
    (part,) = recording.parts
    assert [d.uuid for d in part.segment.devices] == ["FAKE-0", "FAKE-1"]
    power = part.samples[0]
    assert power["value"].tolist() == [200.0 + n for n in range(5) for _ in range(10)]
    expected = [100 + n + t / 10 for n in range(5) for t in range(10)]
    assert power["at"].tolist() == pytest.approx(expected, abs=1e-6)
    assert power["window"].tolist() == pytest.approx([0.1] * 50)
    fan = part.samples[1]
    assert [part.reasons[r - 1] for r in fan["reason"]] == ["it has no fan"] * 5
    assert part.events == [EVENT]


def test_nothing_is_written_twice(source: Source, tmp_path: Path) -> None:
    with Recorder(tmp_path / "r") as recorder:
        source.second(0)
        recorder.take(source.reader)
        size = recorder.nbytes
        recorder.take(source.reader)
        assert (recorder.samples, recorder.nbytes) == (21, size)


def test_the_last_readings_of_a_helper_that_died_are_kept(source: Source, tmp_path: Path) -> None:
    other = Source()
    with Recorder(tmp_path / "r") as recorder:
        source.second(0)
        recorder.take(source.reader)
        source.second(1)
        other.second(5)
        recorder.take(other.reader)
    first, second = read(tmp_path / "r").parts
    assert first.samples[0]["value"].tolist() == [200.0] * 10 + [201.0] * 10
    assert second.samples[0]["value"].tolist() == [205.0] * 10
    other.close()


def test_a_disk_that_is_full_is_a_clear_error(source: Source, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path / "r")
    source.second(0)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(RecordingError, match=r"cannot write .*: File too large"):
            recorder.take(source.reader)
        recorder.close()  # what is left over still does not fit
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_was_cut_short_gives_all_that_is_whole(file: Path) -> None:
    data = file.read_bytes()
    counts = []
    for length in range(len(data)):
        file.write_bytes(data[:length])
        try:
            recording = read(file)
        except RecordingError:
            continue  # the header itself is missing
        samples = sum(len(s) for part in recording.parts for s in part.samples.values())
        if not recording.missing:  # cut between two frames
            assert samples % 21 == 0
        else:
            assert "the file was cut short" in recording.missing
        counts.append(samples)
    assert counts == sorted(counts)
    assert set(counts) == {0, 21, 42, 63, 84}


def test_damage_is_told_and_what_is_before_it_is_kept(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-200] ^= 0xFF
    file.write_bytes(data)
    recording = read(file)
    assert "they were damaged" in recording.missing
    assert len(recording.parts) == 1


def test_recording_goes_on_behind_what_is_whole(source: Source, file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    with Recorder(file) as recorder:
        source.second(5)
        recorder.take(source.reader)
    recording = read(file)
    assert recording.missing == ""
    assert len(recording.parts) == 2
    assert len(recording.parts[0].samples[0]) == 40


@pytest.mark.parametrize(("version", "age"), [(VERSION + 1, "newer"), (0, "older")])
def test_another_version_is_a_clear_error(file: Path, version: int, age: str) -> None:
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, 8, version)
    file.write_bytes(data)
    for use in (read, Recorder):
        with pytest.raises(RecordingError, match=f"format {version}, of an? {age} treadle"):
            use(file)


@pytest.mark.parametrize("content", [b"short", b"something else entirely, and long enough"])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    for use in (read, Recorder):
        with pytest.raises(RecordingError, match="is not a recording"):
            use(path)
    assert path.read_bytes() == content


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read(tmp_path / "none")
    with pytest.raises(RecordingError, match="cannot write"):
        Recorder(tmp_path / "no folder" / "r")


def test_two_cannot_write_one_file(file: Path) -> None:
    with Recorder(file), pytest.raises(RecordingError, match="written by another program"):
        Recorder(file)


def test_only_some_devices_are_recorded_if_so_wished(source: Source, tmp_path: Path) -> None:
    source.second(0)
    with Recorder(tmp_path / "r", ["1"]) as recorder:
        recorder.take(source.reader, [EVENT])
    (part,) = read(tmp_path / "r").parts
    assert [d.uuid for d in part.segment.devices] == ["FAKE-1"]
    assert (len(part.samples), part.events) == (1, [])
    with (
        Recorder(tmp_path / "s", ["7"]) as recorder,
        pytest.raises(RecordingError, match="there are 0 \\(FAKE-0\\), 1 \\(FAKE-1\\)"),
    ):
        recorder.take(source.reader)


def test_a_recording_is_played_as_fast_as_its_clock(file: Path) -> None:
    clock = ManualClock(1000.0)
    first, _ = replay(read(file), clock)
    power, fan = first.sources()
    assert (power.name, power.metrics) == ("replay.fake.power", ("power",))
    assert [r.sampled_at for r in power.read()] == [1000.0]
    assert power.read() == []
    clock.advance(1.05)
    readings = power.read()
    assert [r.value for r in readings] == [200.0] * 9 + [201.0]
    assert readings[-1].sampled_at == pytest.approx(1001.0)
    assert fan.read()[0].reason == "it has no fan"
    assert first.events() == []
    clock.advance(2.0)
    (event,) = first.events()
    assert event.text == "Xid 31"
    assert event.at == pytest.approx(1003.0)
    assert first.events() == []


def test_a_recording_that_is_over_has_no_device_any_more(file: Path) -> None:
    clock = ManualClock()
    first, _ = replay(read(file), clock)
    power = first.sources()[0]
    power.read()
    clock.advance(100.0)
    assert len(power.read()) == 49
    assert power.read() == []
    assert [event.text for event in first.events()] == ["Xid 31"]
    with pytest.raises(DeviceGoneError, match="the recording is over"):
        first.events()


def test_speed_changes_how_long_it_takes(file: Path) -> None:
    clock = ManualClock()
    first, _ = replay(read(file), clock, speed=10.0)
    power = first.sources()[0]
    power.read()
    clock.advance(0.4)
    assert power.read()[-1].sampled_at == pytest.approx(0.4)


def test_parts_follow_one_another(source: Source, file: Path) -> None:
    another = Source()
    with Recorder(file) as recorder:
        another.second(0)
        recorder.take(another.reader)
    another.close()
    recording = read(file)
    assert seconds_of(recording) == pytest.approx(4.9 + 0.9)
    clock = ManualClock()
    power = replay(recording, clock)[0].sources()[0]
    power.read()
    clock.advance(100.0)
    assert len(power.read()) == 59


def test_a_replay_says_what_is_missing(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    devices, reasons = devices_from(f"2:{file}")
    assert len(devices) == 2
    assert "cut short" in reasons[0]
