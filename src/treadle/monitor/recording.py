"""Readings in a file: compact, versioned, and added to again later.

A file begins with 8 bytes of magic, the version and the length of a header (32 bits each, little
endian), and the header in JSON: for a person, and for programs of other versions. Then come
frames: length and CRC-32 of what follows (32 bits each), and a ``Segment`` or a ``Block`` in
MessagePack, compressed by zlib. A segment says what the blocks after it are readings of.

A frame is written in one piece. Of a file that was cut short all whole frames can be read, and
recording on takes away the rest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

import treadle
from treadle.devices.device import DeviceEvent, DeviceInfo
from treadle.errors import TreadleError
from treadle.monitor.directory import Directory, Series, SourceEntry
from treadle.monitor.monitor import Monitor
from treadle.monitor.ring import SAMPLE, Reader, Samples

MAGIC = b"TREADLE\x00"
VERSION = 1
_HEAD = struct.Struct("<8sII")
_FRAME = struct.Struct("<II")
_LEVEL = 6
_MOST_FRAME_BYTES = 1 << 28
_MICROSECOND = 1e-6


class RecordingError(TreadleError):
    """A recording cannot be read or written: the text says which and why."""


class Header(Struct, frozen=True):
    """What a file says of itself, once."""

    format: int
    made_by: str
    began_at: float
    """Seconds since the epoch."""


class Segment(Struct, frozen=True, tag="segment"):
    """Readings begin, of these devices. Times of other segments mean nothing here."""

    devices: tuple[DeviceInfo, ...]
    sources: tuple[SourceEntry, ...]
    series: tuple[Series, ...]
    began_at: float
    """Seconds since the epoch, at ``at``."""
    at: float
    """Monotonic seconds."""


class Column(Struct, frozen=True, array_like=True):
    """Samples of one series."""

    series: int
    base: float
    """Monotonic seconds."""
    at: bytes
    """Microseconds since ``base``, 32 bits each."""
    value: bytes
    """64-bit floats."""
    window: bytes
    """32-bit floats, seconds."""
    reason: bytes
    """8 bits each: 0, or 1 + the place in the block's ``reasons``."""


class Block(Struct, frozen=True, tag="block"):
    """A second or so of everything."""

    columns: tuple[Column, ...]
    reasons: tuple[str, ...]
    events: tuple[DeviceEvent, ...]


@dataclass(slots=True)
class Part:
    """A segment and all its samples."""

    segment: Segment
    samples: dict[int, Samples]
    """By series; ``reason`` is 0, or 1 + the place in ``reasons``."""
    reasons: list[str] = field(default_factory=list)
    events: list[DeviceEvent] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Recording:
    """A file as it was read."""

    header: Header
    parts: list[Part]
    missing: str
    """What could not be read; empty if all could."""


_decode = msgspec.msgpack.Decoder(Segment | Block).decode
_encode = msgspec.msgpack.Encoder().encode


class Recorder:
    """Adds what a monitor reads to a file."""

    def __init__(self, path: Path, devices: Sequence[str] = ()) -> None:
        """Begin a file, or go on with one.

        Args:
            path: Of the file.
            devices: UUIDs or indices of those to record; all if there are none.

        Raises:
            RecordingError: If the file is none of this version, or cannot be written.
        """
        self._wanted = frozenset(devices)
        self._reader: Reader | None = None
        self._chosen: list[int] = []
        self._numbers: dict[int, int] = {}
        self._heard = 0
        self.samples = 0
        try:
            self._file = path.open("r+b" if path.exists() and path.stat().st_size else "w+b")
        except OSError as error:
            raise RecordingError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on(path)
        except BlockingIOError:
            self._file.close()
            raise RecordingError(f"{path} is being written by another program") from None
        except RecordingError:
            self._file.close()
            raise

    def _go_on(self, path: Path) -> None:
        data = self._file.read()
        if data:
            _, end = _header(path, data)
            while (frame := _frame(data, end)) is not None:
                end += _FRAME.size + len(frame)
            self._file.truncate(end)
            self._file.seek(end)
            return
        header = msgspec.json.encode(
            Header(VERSION, f"treadle {treadle.__version__}", round(time.time(), 3))
        )
        self._file.write(_HEAD.pack(MAGIC, VERSION, len(header)) + header)

    def follow(self, monitor: Monitor) -> None:
        """Write what a monitor has read and heard of since the last time."""
        self._heard, events = monitor.events(self._heard)
        if monitor.reader is not None:
            self.take(monitor.reader, events)

    def take(self, reader: Reader, events: Sequence[DeviceEvent] = ()) -> None:
        """Write what is new since the last time."""
        if reader is not self._reader:  # another helper: everything may have changed
            if self._reader is not None:
                self._add(self._reader, ())  # the last before it died are those that matter
            self._begin(reader)
        self._add(reader, events)

    def _add(self, reader: Reader, events: Sequence[DeviceEvent]) -> None:
        columns, reasons = [], dict[int, int]()
        for place, number in enumerate(self._chosen):
            samples = reader.since(number, self._numbers[number])
            if len(samples):
                self._numbers[number] = int(samples["number"][-1])
                self.samples += len(samples)
                columns.append(_column(place, samples, reasons))
        uuids = {info.uuid for info in self._segment_devices} | {""}
        kept = tuple(event for event in events if event.device in uuids)
        if columns or kept:
            texts = tuple(reader.reason(place) for place in reasons)
            self._write(Block(tuple(columns), texts, kept))

    def _begin(self, reader: Reader) -> None:
        directory, self._reader = reader.directory, reader
        devices = tuple(d for d in directory.devices if self._is_wanted(d))
        if not devices:
            known = ", ".join(f"{d.index} ({d.uuid})" for d in directory.devices)
            raise RecordingError(f"no such device; there are {known or 'none'}")
        uuids = {device.uuid for device in devices}
        self._segment_devices = devices
        self._chosen = [n for n, one in enumerate(directory.series) if one.device in uuids]
        self._numbers = dict.fromkeys(self._chosen, 0)
        self._write(_segment(directory, devices, self._chosen))

    def _is_wanted(self, device: DeviceInfo) -> bool:
        names = {device.uuid, str(device.index)}
        return not self._wanted or bool(self._wanted & names)

    def _write(self, content: Segment | Block) -> None:
        payload = zlib.compress(_encode(content), _LEVEL)
        try:
            self._file.write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)
            self._file.flush()
        except OSError as error:
            raise RecordingError(f"cannot write {self._file.name}: {error.strerror}") from error

    @property
    def nbytes(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Give the file back; what could not be written was told when it was tried."""
        if not self._file.closed:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
            with contextlib.suppress(OSError):  # a full disk, again: it is closed all the same
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _segment(
    directory: Directory, devices: tuple[DeviceInfo, ...], chosen: Sequence[int]
) -> Segment:
    uuids = {device.uuid for device in devices}
    return Segment(
        devices,
        tuple(entry for entry in directory.sources if entry.device in uuids),
        tuple(directory.series[number] for number in chosen),
        time.time(),
        time.monotonic(),
    )


def _column(series: int, samples: Samples, reasons: dict[int, int]) -> Column:
    base = float(samples["at"].min())
    for place in np.unique(samples["reason"]).tolist():
        if place:
            reasons.setdefault(place, min(len(reasons) + 1, 255))
    numbers = np.array([reasons.get(r, 0) for r in samples["reason"].tolist()], "u1")
    return Column(
        series,
        base,
        np.round((samples["at"] - base) / _MICROSECOND).astype("<u4").tobytes(),
        samples["value"].astype("<f8").tobytes(),
        samples["window"].astype("<f4").tobytes(),
        numbers.tobytes(),
    )


def read(path: Path) -> Recording:
    """Read a recording: all that is whole, and what is not.

    Raises:
        RecordingError: If it is no recording, or of another version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}") from error
    header, at = _header(path, data)
    parts: list[_Growing] = []
    missing = ""
    while at < len(data):
        payload = _frame(data, at)
        content = None if payload is None else _content(payload)
        if payload is None or content is None:
            missing = f"the last {len(data) - at} of {len(data)} bytes: the file was cut short"
            if at + _FRAME.size <= len(data) and payload is None and _fits(data, at):
                missing = f"{len(data) - at} bytes from byte {at} on: they were damaged"
            break
        at += _FRAME.size + len(payload)
        if isinstance(content, Segment):
            parts.append(_Growing(content))
        elif parts:
            parts[-1].add(content)
    return Recording(header=header, parts=[part.whole() for part in parts], missing=missing)


class _Growing:
    """A part while its blocks are read."""

    def __init__(self, segment: Segment) -> None:
        self.part = Part(segment, {})
        self._columns: dict[int, list[Samples]] = {}
        self._reasons: dict[str, int] = {}

    def add(self, block: Block) -> None:
        self.part.events += block.events
        places = [0] + [self._reasons.setdefault(r, len(self._reasons) + 1) for r in block.reasons]
        for column in block.columns:
            samples: npt.NDArray[np.void] = np.zeros(len(column.reason), SAMPLE)
            samples["at"] = column.base + np.frombuffer(column.at, "<u4") * _MICROSECOND
            samples["value"] = np.frombuffer(column.value, "<f8")
            samples["window"] = np.frombuffer(column.window, "<f4")
            samples["reason"] = np.array(places)[np.frombuffer(column.reason, "u1")]
            self._columns.setdefault(column.series, []).append(samples)

    def whole(self) -> Part:
        self.part.samples = {n: np.concatenate(c) for n, c in sorted(self._columns.items())}
        self.part.reasons = list(self._reasons)
        return self.part


def _header(path: Path, data: bytes) -> tuple[Header, int]:
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise RecordingError(f"{path} is not a recording")
    _, version, length = _HEAD.unpack_from(data)
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise RecordingError(
            f"{path} has format {version}, of {age} treadle; this one reads format {VERSION}"
        )
    end = _HEAD.size + length
    try:
        return msgspec.json.decode(data[_HEAD.size : end], type=Header), end
    except msgspec.MsgspecError as error:
        raise RecordingError(f"the header of {path} is damaged: {error}") from error


def _fits(data: bytes, at: int) -> bool:
    length, _ = _FRAME.unpack_from(data, at)
    return at + _FRAME.size + int(length) <= len(data)


def _frame(data: bytes, at: int) -> bytes | None:
    """The payload of the frame that begins there; None if it is not whole."""
    if at + _FRAME.size > len(data) or not _fits(data, at):
        return None
    length, crc = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + length]
    return payload if zlib.crc32(payload) == crc else None


def _content(payload: bytes) -> Segment | Block | None:
    try:
        plain = zlib.decompressobj().decompress(payload, _MOST_FRAME_BYTES)
        content: Segment | Block = _decode(plain)
    except (zlib.error, msgspec.MsgspecError):
        return None
    return content
