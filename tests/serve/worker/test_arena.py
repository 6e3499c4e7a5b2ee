"""Memory that grows at one end and is followed at the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from treadle.serve.worker.arena import Arena


@pytest.fixture
def writer() -> Iterator[Arena]:
    arena = Arena.create("test")
    yield arena
    arena.close()


def fill(arena: Arena, nbytes: int) -> bytes:
    content = bytes(range(256)) * (nbytes // 256)
    arena.reserve(len(content))[: len(content)] = content
    return content


def test_there_is_room_for_what_was_reserved(writer: Arena) -> None:
    for nbytes in (0, 1, 4096, 1 << 20, (1 << 20) + 1, 5_000_001):
        assert len(writer.reserve(nbytes)) >= nbytes


def test_another_mapping_of_the_same_memory_follows(writer: Arena) -> None:
    reader = Arena(writer.fd)
    for nbytes in (1 << 10, 1 << 20, 1 << 22, 1 << 23):
        content = fill(writer, nbytes)
        assert bytes(reader.follow(nbytes)[:nbytes]) == content


def test_both_see_what_either_writes(writer: Arena) -> None:
    reader = Arena(writer.fd)
    fill(writer, 4096)
    reader.follow(4096)[7] = 99
    assert writer.view[7] == 99


def test_growing_keeps_what_was_in_it(writer: Arena) -> None:
    content = fill(writer, 1 << 20)
    writer.reserve(1 << 24)
    assert bytes(writer.view[: len(content)]) == content


def test_what_was_handed_out_before_growing_stays_valid_over_the_same_memory(
    writer: Arena,
) -> None:
    fill(writer, 1 << 20)
    early = np.frombuffer(writer.view, np.uint8)[:1024]
    before = early.tolist()
    writer.reserve(1 << 24)
    assert early.tolist() == before
    writer.view[0] = 42
    assert early[0] == 42


def test_growing_doubles_so_that_it_is_seldom(writer: Arena) -> None:
    sizes = {len(writer.reserve(nbytes)) for nbytes in range(0, 1 << 24, 1 << 16)}
    assert len(sizes) < 10


def test_reserving_less_does_not_shrink_it(writer: Arena) -> None:
    size = len(writer.reserve(1 << 23))
    assert len(writer.reserve(1)) == size


def test_it_has_no_name_in_any_file_system(writer: Arena) -> None:
    assert os.fstat(writer.fd).st_nlink == 0
    assert os.get_inheritable(writer.fd) is False


def test_closing_lets_the_descriptor_go() -> None:
    arena = Arena.create("test")
    arena.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena.fd)


def test_who_is_told_of_a_new_mapping_still_finds_the_old_one(writer: Arena) -> None:
    where: list[set[str]] = []

    def look(arena: Arena) -> None:
        where.append(mappings(arena))

    before = mappings(writer)
    writer.on_map = look
    writer.reserve(1 << 24)
    after = mappings(writer)
    assert where == [before | after]
    assert before.isdisjoint(after)


def mappings(arena: Arena) -> set[str]:
    """Where this process has it in its address space."""
    inode = str(os.fstat(arena.fd).st_ino)
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return {line[0] for line in lines if line[4] == inode}
