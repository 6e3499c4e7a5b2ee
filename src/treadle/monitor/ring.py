"""Readings in shared memory: one writer, any number of readers, and no lock between them.

A memory file holds a header, a table of reasons, a directory in JSON, how often each source is
read at present and, for each series (a metric of a device), a ring of samples. A sample is 40
bytes: when, value, window, which reason, and its number. The writer writes a sample and then counts
it; a reader copies, looks at the count again, and drops what the writer may have come round to
meanwhile.

A ring keeps ``KEPT_SECONDS`` of its metric where that is read as often as it changes, longer where
it is read less often, and at most 8192 samples (320 KiB). A GPU with every metric comes to about
3 MiB, eight to 24 MiB; a file never has more than 64 MiB: where more devices would need more, each
ring keeps less.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from treadle.devices.device import Reading
from treadle.errors import TreadleError
from treadle.monitor.directory import Directory, Series

MAGIC = 0x474E495254524401
ABI = 2
KEPT_SECONDS = 60.0
MAX_BYTES = 64 << 20
LEAST_SAMPLES, MOST_SAMPLES = 16, 8192

# Words of the header.
_MAGIC, _ABI, _STATE, _HEARTBEAT, _DOING, _DOING_SINCE, _DIRECTORY_BYTES, _REASONS = range(8)
_TICKS = 8
_HEADER_BYTES = 4096
_REASON_BYTES, _MOST_REASONS = 128, 256
_DIRECTORY_AT = _HEADER_BYTES + _REASON_BYTES * _MOST_REASONS
_STARTING, _READY = 0, 1

SAMPLE = np.dtype(
    [("at", "<f8"), ("value", "<f8"), ("window", "<f8"), ("reason", "<u8"), ("number", "<u8")]
)
_SAMPLE = struct.Struct("@dddQQ")
"""The machine's own, which is little-endian here: each word is written at once, and faster."""
_SAMPLE_BYTES = _SAMPLE.size
_pack_into = _SAMPLE.pack_into
_TRIES = 8
_NAME = "treadle-readings"
_RING_HEAD_BYTES = 64
_PACE = struct.Struct("@dd")

Samples = npt.NDArray[np.void]
"""Of ``SAMPLE``, the oldest first. ``reason`` is 0 where there is a value."""


class Pace(NamedTuple):
    """How a source is read at present."""

    interval_seconds: float
    cost_seconds: float
    """CPU time that a read usually takes, as measured here; as claimed until it is."""


class RingError(TreadleError):
    """A memory file cannot be used: the text says why."""


def capacity(interval_seconds: float, kept_seconds: float = KEPT_SECONDS) -> int:
    """How many samples a ring of that pace holds."""
    return int(min(MOST_SAMPLES, max(LEAST_SAMPLES, kept_seconds / interval_seconds)))


def _pace_at(directory_bytes: int) -> int:
    """Where the sources' pace lies: behind the directory."""
    return -(-(_DIRECTORY_AT + directory_bytes) // 8) * 8


def _layout(series: Sequence[Series], start: int) -> tuple[list[Series], int]:
    """Give every series its place; rings keep less where all would need too much."""
    kept = KEPT_SECONDS
    while True:
        placed, end = [], start
        for one in series:
            samples = capacity(one.interval_seconds, kept)
            placed.append(msgspec.structs.replace(one, offset=end, capacity=samples))
            end += _RING_HEAD_BYTES + samples * SAMPLE.itemsize
        if end <= MAX_BYTES:
            return placed, end
        if kept * 2 < min(one.interval_seconds for one in series):
            raise RingError(f"{len(series)} series need {end} bytes; at most {MAX_BYTES}")
        kept /= 2


class Writer:
    """The only one who writes."""

    def __init__(self, fd: int, directory: Directory) -> None:
        room = len(msgspec.json.encode(directory)) + 64 * len(directory.series) + 4096
        room += _PACE.size * (len(directory.sources) + 1)
        start = -(-(_DIRECTORY_AT + room) // 64) * 64
        placed, size = _layout(directory.series, start)
        self.directory = msgspec.structs.replace(directory, series=tuple(placed))
        encoded = msgspec.json.encode(self.directory)
        self._pace_at = _pace_at(len(encoded))
        if self._pace_at + _PACE.size * len(directory.sources) > start:
            raise RingError("the directory is larger than was thought")
        os.ftruncate(fd, size)
        self._memory = mmap.mmap(fd, size)
        self._words = memoryview(self._memory)[:_HEADER_BYTES].cast("Q")
        self._memory[_DIRECTORY_AT : _DIRECTORY_AT + len(encoded)] = encoded
        self._words[_DIRECTORY_BYTES] = len(encoded)
        view = memoryview(self._memory)
        self._rings = [
            (
                view[one.offset : one.offset + 8].cast("Q"),
                one.offset + _RING_HEAD_BYTES,
                one.capacity,
            )
            for one in placed
        ]
        self._places: dict[str, int] = {}
        self.nbytes = size
        for number, source in enumerate(directory.sources):
            self.pace(number, source.interval_seconds, source.cost_seconds)

    def ready(self) -> None:
        """Let readers in."""
        self.beat(time.monotonic())
        self._words[_STATE] = _READY
        self._words[_ABI] = ABI
        self._words[_MAGIC] = MAGIC

    def beat(self, now: float) -> None:
        self._words[_HEARTBEAT] = int(now * 1e9)

    def tick(self) -> None:
        """Count a tick of the fastest tier."""
        self._words[_TICKS] += 1

    def doing(self, source: int | None, now: float) -> None:
        """Say which source is being read from now on: an index of the directory, or none."""
        self._words[_DOING_SINCE] = int(now * 1e9)
        self._words[_DOING] = 0 if source is None else source + 1

    def pace(self, source: int, interval_seconds: float, cost_seconds: float) -> None:
        """Say how often a source is read from now on: an index of the directory."""
        start = self._pace_at + source * _PACE.size
        _PACE.pack_into(self._memory, start, interval_seconds, cost_seconds)

    def write(
        self, series: int, at: float, value: float | None, window: float, reason: str = ""
    ) -> None:
        """Append a sample to the ring of a series."""
        count, start, capacity = self._rings[series]
        index = count[0]
        place = 0 if value is not None else self._place(reason)
        start += index % capacity * _SAMPLE_BYTES
        _pack_into(self._memory, start, at, value or 0.0, window, place, index + 1)
        count[0] = index + 1

    def write_together(
        self, series: Sequence[int], at: float, values: Sequence[float], window: float
    ) -> None:
        """Append a value to the ring of each series, all of one moment.

        The window is the first one's; the others have none.
        """
        rings, memory = self._rings, self._memory
        for number, value in zip(series, values, strict=True):
            count, start, capacity = rings[number]
            index = count[0]
            start += index % capacity * _SAMPLE_BYTES
            _pack_into(memory, start, at, value, window, 0, index + 1)
            count[0] = index + 1
            window = 0.0

    def _place(self, reason: str) -> int:
        """The number of a reason, 1 and above, in a table that only grows."""
        place = self._places.get(reason)
        if place is None:
            place = len(self._places) + 1
            if place >= _MOST_REASONS:
                place, text = _MOST_REASONS, "there are too many reasons to tell this one"
            else:
                self._places[reason], text = place, reason or "no reason was given"
            cut = text.encode(errors="replace")[: _REASON_BYTES - 1]
            start = _HEADER_BYTES + (place - 1) * _REASON_BYTES
            self._memory[start : start + _REASON_BYTES] = cut.ljust(_REASON_BYTES, b"\0")
            self._words[_REASONS] = place
        return place


class Reader:
    """Looks at a memory file without holding up its writer."""

    def __init__(self, fd: int) -> None:
        """Map the file.

        Raises:
            RingError: If it is not one, or not ready, or of another version.
        """
        size = os.fstat(fd).st_size
        if size < _DIRECTORY_AT:
            raise RingError("it is not ready")
        self._memory = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        self._words = np.frombuffer(self._memory, "<u8", _HEADER_BYTES // 8)
        if self._words[_MAGIC] != MAGIC:
            raise RingError("it is not ready" if not self._words[_MAGIC] else "it holds no rings")
        if self._words[_ABI] != ABI:
            raise RingError(f"its layout is version {self._words[_ABI]}, this treadle knows {ABI}")
        end = _DIRECTORY_AT + int(self._words[_DIRECTORY_BYTES])
        self.directory = msgspec.json.decode(self._memory[_DIRECTORY_AT:end], type=Directory)
        self._pace_at = _pace_at(end - _DIRECTORY_AT)
        self._rings = [
            np.frombuffer(self._memory, SAMPLE, one.capacity, one.offset + _RING_HEAD_BYTES)
            for one in self.directory.series
        ]
        self._counts = [
            np.frombuffer(self._memory, "<u8", 1, one.offset) for one in self.directory.series
        ]
        self._count_words = memoryview(self._memory)[: size // 8 * 8].cast("Q")
        self.nbytes = size

    @property
    def heartbeat(self) -> float:
        """When the writer was last alive, monotonic seconds."""
        return float(self._words[_HEARTBEAT]) / 1e9

    @property
    def ticks(self) -> int:
        return int(self._words[_TICKS])

    @property
    def doing(self) -> tuple[int, float] | None:
        """The source that is being read, and since when."""
        source, since = int(self._words[_DOING]), float(self._words[_DOING_SINCE]) / 1e9
        return (source - 1, since) if source else None

    def pace(self, source: int) -> Pace:
        """How a source is read at present: an index of the directory."""
        return Pace(*_PACE.unpack_from(self._memory, self._pace_at + source * _PACE.size))

    def reason(self, place: int) -> str:
        """The text behind a sample's ``reason``."""
        start = _HEADER_BYTES + (place - 1) * _REASON_BYTES
        text: bytes = self._memory[start : start + _REASON_BYTES]
        return text.rstrip(b"\0").decode(errors="replace")

    def since(self, series: int, number: int = 0, last: int | None = None) -> Samples:
        """A consistent copy of the samples after the one of that number, at most the ``last``."""
        ring = self._rings[series]
        count = int(self._counts[series][0])
        first = max(number, count - len(ring) + 1, 0)
        if last is not None:
            first = max(first, count - last)
        if first >= count:
            return ring[:0].copy()
        indices = np.arange(first, count, dtype=np.uint64)
        copied: Samples = ring[indices % np.uint64(len(ring))]
        # The sample that the writer is at, or has come round to, may be half a new one.
        lost = max(0, int(self._counts[series][0]) - len(ring) + 1 - first)
        # Where memory is not seen in the order in which it was written, the count may be early.
        whole: Samples = copied[lost:][(copied["number"] == indices + np.uint64(1))[lost:]]
        return whole

    def latest(self, series: int) -> Reading | None:
        """The newest sample; None if there never was one."""
        one, counts = self.directory.series[series], self._count_words
        for _ in range(_TRIES):  # again only where the writer came round meanwhile
            number = counts[one.offset // 8]
            if not number:
                return None
            start = one.offset + _RING_HEAD_BYTES + (number - 1) % one.capacity * _SAMPLE_BYTES
            at, value, window, reason, own = _SAMPLE.unpack_from(self._memory, start)
            # The writer comes round to it when it is at the capacity's last.
            if own == number and counts[one.offset // 8] - number < one.capacity - 1:
                if reason:
                    return Reading(one.metric, None, at, window, self.reason(reason))
                return Reading(one.metric, value, at, window)
        return None


def create() -> int:
    """A memory file, for a writer to lay out. Returns its descriptor."""
    return os.memfd_create(_NAME, os.MFD_CLOEXEC)


def open_of(pid: int, descriptor: int) -> tuple[Reader, int]:
    """Look at the memory file that another process of this user holds open.

    Args:
        pid: Of that process.
        descriptor: Of the file, there.

    Returns:
        The reader, and the file's inode: as long as ``inode_of`` tells the same, it is this file.

    Raises:
        RingError: If it cannot be opened, or is no such file.
    """
    place = _path(pid, descriptor)
    try:
        # A number that was used again since may be of anything: what is no memory stays shut.
        if not str(place.readlink()).startswith(f"/memfd:{_NAME}"):
            raise RingError("it holds no rings")
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise RingError(f"cannot open the memory of process {pid}: {error.strerror}") from error
    try:
        return Reader(fd), os.fstat(fd).st_ino
    except OSError as error:
        raise RingError(f"cannot map the memory of process {pid}: {error.strerror}") from error
    finally:
        os.close(fd)  # what is mapped stays


def inode_of(pid: int, descriptor: int) -> int | None:
    """The inode of what a process holds open; None if nobody can tell."""
    try:
        return _path(pid, descriptor).stat().st_ino
    except OSError:
        return None


def _path(pid: int, descriptor: int) -> Path:
    return Path("/proc") / str(pid) / "fd" / str(descriptor)
