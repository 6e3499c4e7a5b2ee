"""Rings in shared memory: one writer, readers that never see half a sample."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from treadle.devices.device import Reading
from treadle.monitor import ring
from treadle.monitor.directory import Directory, Series, SourceEntry
from treadle.monitor.ring import MAX_BYTES, Reader, RingError, Writer

SLOW = Series("GPU-0", "temperature", "nvml", 1.0)
FAST = Series("GPU-0", "gate_work", "turnstile", 0.01)


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = ring.create()
    yield descriptor
    os.close(descriptor)


def pair(memory: int, *series: Series) -> tuple[Writer, Reader]:
    writer = Writer(memory, Directory((), (), series or (SLOW, FAST)))
    writer.ready()
    return writer, Reader(memory)


def test_what_is_written_is_read(memory: int) -> None:
    writer, reader = pair(memory)
    assert reader.latest(0) is None
    writer.write(0, 1.5, 42.0, 0.1)
    assert reader.latest(0) == Reading("temperature", 42.0, 1.5, 0.1)
    assert reader.latest(1) is None


def test_the_pace_of_a_source_is_told_and_may_change(memory: int) -> None:
    sources = tuple(SourceEntry("GPU-0", f"s{n}", 0.1 * n, 0.001 * n, ()) for n in range(1, 4))
    writer = Writer(memory, Directory((), sources, (SLOW, FAST)))
    writer.ready()
    reader = Reader(memory)
    assert [reader.pace(n).cost_seconds for n in range(3)] == [0.001, 0.002, 0.003]
    writer.pace(1, 2.5, 0.004)
    writer.write(0, 1.0, 1.0, 0.0)
    assert [reader.pace(n).interval_seconds for n in range(3)] == [0.1, 2.5, pytest.approx(0.3)]
    assert reader.directory.sources == sources


def test_values_of_one_moment_are_written_together(memory: int) -> None:
    writer, reader = pair(memory)
    writer.write_together([1, 0], 1.5, [7.0, 0.0], 0.01)
    assert reader.latest(1) == Reading("gate_work", 7.0, 1.5, 0.01)
    assert reader.latest(0) == Reading("temperature", 0.0, 1.5, 0.0)


def test_a_missing_value_has_its_reason(memory: int) -> None:
    writer, reader = pair(memory)
    for reason in ("no sensor", "it is lost", "no sensor"):
        writer.write(0, 1.0, None, 0.0, reason)
    assert reader.latest(0) == Reading("temperature", None, 1.0, 0.0, "no sensor")
    assert [reader.reason(place) for place in reader.since(0)["reason"]] == [
        "no sensor",
        "it is lost",
        "no sensor",
    ]


def test_a_value_of_zero_is_a_value(memory: int) -> None:
    writer, reader = pair(memory)
    writer.write(0, 1.0, 0.0, 0.0)
    assert reader.latest(0) == Reading("temperature", 0.0, 1.0, 0.0)


def test_reasons_are_cut_and_there_is_an_end_to_them(memory: int) -> None:
    writer, reader = pair(memory)
    writer.write(0, 1.0, None, 0.0, "x" * 500)
    latest = reader.latest(0)
    assert latest is not None
    assert latest.reason == "x" * 127
    for number in range(300):
        writer.write(0, 1.0, None, 0.0, f"reason {number}")
    latest = reader.latest(0)
    assert latest is not None
    assert latest.reason == "there are too many reasons to tell this one"


def test_a_ring_keeps_the_newest(memory: int) -> None:
    writer, reader = pair(memory)
    for number in range(1000):
        writer.write(0, float(number), float(number), 0.0)
    kept = reader.since(0)["value"].tolist()
    assert kept == [float(n) for n in range(1000 - len(kept), 1000)]
    assert reader.since(0, last=3)["value"].tolist() == [997.0, 998.0, 999.0]
    assert reader.since(0, number=998)["value"].tolist() == [998.0, 999.0]
    assert len(reader.since(0, number=1000)) == 0


def test_a_fast_metric_is_kept_for_as_long_as_a_slow_one(memory: int) -> None:
    _, reader = pair(memory)
    slow, fast = reader.directory.series
    assert (slow.capacity, fast.capacity) == (60, 6000)


def test_the_memory_is_bounded_whatever_there_is(memory: int) -> None:
    many = [Series(f"GPU-{n}", f"m{m}", "s", 0.01) for n in range(16) for m in range(48)]
    writer, reader = pair(memory, *many)
    assert writer.nbytes <= MAX_BYTES
    assert all(one.capacity >= 16 for one in reader.directory.series)


def test_a_file_that_is_not_ready_is_not_read(memory: int) -> None:
    with pytest.raises(RingError, match="not ready"):
        Reader(memory)
    writer = Writer(memory, Directory((), (), (SLOW,)))
    with pytest.raises(RingError, match="not ready"):
        Reader(memory)
    writer.ready()
    Reader(memory)


@pytest.mark.parametrize(("word", "text"), [(0, "holds no rings"), (1, "version 99")])
def test_a_file_of_another_kind_is_refused(memory: int, word: int, text: str) -> None:
    pair(memory)
    os.pwrite(memory, (99).to_bytes(8, "little"), word * 8)
    with pytest.raises(RingError, match=text):
        Reader(memory)


def test_readers_see_whole_samples_while_they_are_written(memory: int) -> None:
    writer, reader = pair(memory)
    stop = threading.Event()

    def write() -> None:
        number = 0.0
        while not stop.is_set():
            writer.write(0, number, number, number)
            number += 1.0

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    try:
        while seen < 20_000:
            samples = reader.since(0)
            seen += len(samples) + 1
            assert (samples["at"] == samples["value"]).all()
            assert (samples["at"] == samples["window"]).all()
            assert (samples["number"] == samples["at"] + 1).all()
    finally:
        stop.set()
        thread.join()


def test_a_sample_that_is_counted_before_it_is_seen_whole_is_not_read(memory: int) -> None:
    writer, reader = pair(memory)
    slow = reader.directory.series[0]
    for number in range(1, 4):
        writer.write(0, float(number), float(number), 0.0)
    os.pwrite(memory, (4).to_bytes(8, "little"), slow.offset)  # the count; the sample comes later
    assert reader.latest(0) is None
    assert reader.since(0)["value"].tolist() == [1.0, 2.0, 3.0]
    os.pwrite(memory, (3).to_bytes(8, "little"), slow.offset)
    writer.write(0, 4.0, 4.0, 0.0)
    assert reader.latest(0) == Reading("temperature", 4.0, 4.0, 0.0)
    assert reader.since(0)["value"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_reader_sees_what_the_writer_is_at(memory: int) -> None:
    writer, reader = pair(memory)
    writer.beat(12.5)
    assert (reader.heartbeat, reader.doing, reader.ticks) == (12.5, None, 0)
    writer.doing(0, 13.0)
    writer.tick()
    assert (reader.doing, reader.ticks) == ((0, 13.0), 1)
    writer.doing(None, 14.0)
    assert reader.doing is None
