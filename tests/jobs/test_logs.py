"""The output of a job, read while it is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.programs.logs import LogReader
from treadle.programs.supervisor.log import Log


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a supervisor writes where it is
    return tmp_path


@pytest.fixture
def files(folder: Path) -> list[Path]:
    return [folder / "log.1", folder / "log"]


@pytest.fixture
def log(folder: Path) -> Iterator[Log]:
    made = Log(20)
    yield made
    made.close()


def drain(reader: LogReader) -> bytes:
    return b"".join(iter(reader.read, b""))


def whole(files: list[Path], last_lines: int | None = None) -> bytes:
    reader = LogReader(files, last_lines)
    try:
        return drain(reader)
    finally:
        reader.close()


def test_before_there_is_anything_there_is_nothing(files: list[Path]) -> None:
    assert whole(files) == whole(files, 5) == b""


def test_the_older_file_comes_first(files: list[Path]) -> None:
    files[0].write_bytes(b"1\n")
    files[1].write_bytes(b"2\n")
    assert whole(files) == b"1\n2\n"


def test_what_is_added_is_read_next(files: list[Path], log: Log) -> None:
    reader = LogReader(files)
    assert drain(reader) == b""
    for text in (b"a", b"b\n", b"c"):
        log.write(text)
        assert drain(reader) == text
        assert drain(reader) == b""
    reader.close()


def test_reading_goes_on_through_the_change_of_files(files: list[Path], log: Log) -> None:
    reader = LogReader(files)
    found = b""
    for number in range(100):
        log.write(b"%4d\n" % number)
        found += drain(reader)
    assert found == b"".join(b"%4d\n" % number for number in range(100))
    reader.close()


def test_a_change_between_two_reads_loses_nothing(files: list[Path], log: Log) -> None:
    reader = LogReader(files)
    log.write(b"12345678\n")
    assert reader.read() == b"12345678\n"
    log.write(b"a\n")  # into a new file
    log.write(b"b\n")
    assert drain(reader) == b"a\nb\n"
    reader.close()


def test_who_is_left_far_behind_goes_on_with_the_oldest_that_is_kept(
    files: list[Path], log: Log
) -> None:
    reader = LogReader(files)
    log.write(b"first\n")
    assert drain(reader) == b"first\n"
    for number in range(50):
        log.write(b"%7d\n" % number)
    assert drain(reader) == b"%7d\n%7d\n" % (48, 49)
    assert drain(reader) == b""
    reader.close()


def test_a_new_file_with_the_number_of_a_deleted_one_is_a_new_file(
    files: list[Path], log: Log
) -> None:
    reader = LogReader(files)
    seen = b""
    for number in range(30):  # numbers of files are used again at once by most file systems
        log.write(b"%8d\n" % number)
        log.write(b"%8d\n" % number)
        seen += drain(reader)
    assert seen.split() == [b"%d" % (number // 2) for number in range(60)]
    reader.close()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (0, b""),
        (1, b"e\n"),
        (2, b"d\ne\n"),
        (3, b"c\nd\ne\n"),
        (5, b"a\nb\nc\nd\ne\n"),
        (9, b"a\nb\nc\nd\ne\n"),
    ],
)
def test_the_last_lines_may_reach_into_the_older_file(
    files: list[Path], lines: int, expected: bytes
) -> None:
    files[0].write_bytes(b"a\nb\nc\n")
    files[1].write_bytes(b"d\ne\n")
    assert whole(files, lines) == expected


def test_a_line_without_an_end_is_a_line(files: list[Path]) -> None:
    files[1].write_bytes(b"a\nb\nc")
    assert whole(files, 1) == b"c"
    assert whole(files, 2) == b"b\nc"


def test_the_last_lines_of_a_large_file_are_found(files: list[Path]) -> None:
    lines = [b"%d" % number * 20 for number in range(50_000)]
    files[1].write_bytes(b"\n".join(lines) + b"\n")
    assert whole(files, 30_000) == b"\n".join(lines[20_000:]) + b"\n"


def test_after_the_last_lines_comes_what_is_added(files: list[Path], log: Log) -> None:
    log.write(b"a\nb\n")
    reader = LogReader(files, 1)
    assert drain(reader) == b"b\n"
    log.write(b"c\n")
    assert drain(reader) == b"c\n"
    reader.close()


def test_none_of_the_last_lines_is_only_what_comes(files: list[Path], log: Log) -> None:
    log.write(b"a\n")
    reader = LogReader(files, 0)
    assert drain(reader) == b""
    log.write(b"b\n")
    assert drain(reader) == b"b\n"
    reader.close()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.binary(max_size=25), st.booleans()), max_size=30))
def test_what_is_read_is_what_was_written_unless_it_was_too_much(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bytes, bool]]
) -> None:
    folder, before = tmp_path_factory.mktemp("log"), Path.cwd()
    os.chdir(folder)
    try:
        log, reader = Log(64), LogReader([folder / "log.1", folder / "log"])
        written, seen, lag = b"", b"", 0
        for data, look in steps:
            log.write(data)
            written, lag = written + data, lag + len(data)
            if look or lag > 25:
                seen, lag = seen + drain(reader), 0
        seen += drain(reader)
        reader.close()
        assert seen == written
        sizes = [file.stat().st_size for file in folder.iterdir()]
        assert max(sizes) <= 32
    finally:
        os.chdir(before)


# The writer's end.


def test_a_log_keeps_the_newest_half_at_least(files: list[Path], log: Log) -> None:
    written = b""
    for number in range(100):
        log.write(b"%d\n" % number)
        written += b"%d\n" % number
        kept = whole(files)
        assert written.endswith(kept)
        assert min(10, len(written)) <= len(kept) + 3 <= 23


def test_of_one_large_piece_the_end_is_kept(files: list[Path], log: Log) -> None:
    log.write(b"x" * 50 + b"0123456789")
    assert whole(files) == b"x" * 10 + b"0123456789"
    assert log.lost_bytes == 0


def test_a_log_goes_on_where_an_earlier_one_was(files: list[Path], log: Log) -> None:
    log.write(b"abc")
    Log(20).write(b"def")
    assert whole(files) == b"abcdef"


class FullDisk:
    """``os.write`` on a disk that takes so many bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        if self.room is None:
            return self._write(descriptor, data)
        if self.room == 0:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, bytes(data)[: self.room])
        self.room -= written
        return written


def test_what_a_full_disk_does_not_take_is_counted_and_said(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    log, disk = Log(1000), FullDisk(monkeypatch)
    log.write(b"before\n")
    disk.room = 3
    log.write(b"12345678")
    log.write(b"lost")
    disk.room = 10  # not enough to say it
    log.write(b"lost, too")
    disk.room = None
    log.write(b"after\n")
    assert whole(files) == (
        b"before\n123\n[treadle: 18 bytes of output were lost: the disk was full]\nafter\n"
    )
    assert log.lost_bytes == 18


def test_what_was_lost_last_is_said_at_the_end(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    log, disk = Log(1000), FullDisk(monkeypatch)
    disk.room = 0
    log.write(b"lost")
    log.close()
    disk.room = None
    log.close()
    log.close()
    assert whole(files) == b"\n[treadle: 4 bytes of output were lost: the disk was full]\n"


def test_a_log_that_cannot_begin_a_new_file_goes_on_as_soon_as_it_can(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    log, opened = Log(200), os.open
    log.write(b"x" * 90)

    def no_file(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", no_file)
    log.write(b"y" * 50)
    log.write(b"z" * 50)
    monkeypatch.setattr(os, "open", opened)
    log.write(b"end\n")
    assert whole(files) == (
        b"x" * 90 + b"\n[treadle: 100 bytes of output were lost: the disk was full]\nend\n"
    )
