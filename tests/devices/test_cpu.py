"""The CPU as a device: the smaller of what is there and what the container may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.devices.cpu import cpu_device

HOST_CORES = 8
HOST_BYTES = 1 << 34


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a known size."""
    sizes = {"SC_PHYS_PAGES": HOST_BYTES >> 12, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HOST_CORES)))
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)


# content of cpu.max (None: no such file) -> cores
QUOTAS = [
    (None, 8),
    ("max 100000\n", 8),
    ("200000 100000\n", 2),
    ("150000 100000\n", 2),
    ("100001 100000\n", 2),
    ("100000 100000\n", 1),
    ("5000 100000\n", 1),
    ("400000 50000\n", 8),
    ("1600000 100000\n", 8),
    ("", 8),
    ("100000\n", 8),
    ("nonsense 100000\n", 8),
]


@pytest.mark.parametrize(("content", "cores"), QUOTAS)
def test_cores(tmp_path: Path, content: str | None, cores: int) -> None:
    if content is not None:
        (tmp_path / "cpu.max").write_text(content)
    assert cpu_device(tmp_path).cores == cores


# content of memory.max (None: no such file) -> bytes
LIMITS = [
    (None, HOST_BYTES),
    ("max\n", HOST_BYTES),
    ("1073741824\n", 1 << 30),
    (f"{1 << 60}\n", HOST_BYTES),
    ("", HOST_BYTES),
]


@pytest.mark.parametrize(("content", "nbytes"), LIMITS)
def test_memory(tmp_path: Path, content: str | None, nbytes: int) -> None:
    if content is not None:
        (tmp_path / "memory.max").write_text(content)
    assert cpu_device(tmp_path).memory_bytes == nbytes


def test_the_affinity_mask_counts_where_it_is_the_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    assert cpu_device(tmp_path).cores == 1


def test_a_folder_that_is_not_there_limits_nothing(tmp_path: Path) -> None:
    device = cpu_device(tmp_path / "absent")
    assert (device.name, device.kind) == ("cpu", "cpu")
    assert (device.cores, device.memory_bytes) == (HOST_CORES, HOST_BYTES)


def test_this_machine_has_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    device = cpu_device()
    assert 1 <= device.cores <= (os.cpu_count() or 1)
    assert device.memory_bytes > 0
