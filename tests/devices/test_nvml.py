"""Processes on a GPU, told by a library that is not here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pynvml  # type: ignore[import-untyped]
import pytest

from treadle.devices.nvml import NVMLError, compute_processes


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)


@pytest.fixture
def cuda_process(tmp_path: Path) -> Iterator[int]:
    """A process that has mapped something by the name of libcuda."""
    program = (
        "import mmap, sys; f = open('libcuda.so.1', 'w+b'); f.truncate(4096); "
        "m = mmap.mmap(f.fileno(), 4096); print('mapped', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        yield process.pid
        process.kill()


def on_the_gpu(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    found = [SimpleNamespace(pid=pid, usedGpuMemory=3 << 30) for pid in pids]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda gpu: found)


def test_a_process_is_named(monkeypatch: pytest.MonkeyPatch, cuda_process: int) -> None:
    on_the_gpu(monkeypatch, cuda_process)
    (process,) = compute_processes("GPU-1")
    assert (process.pid, process.memory_bytes) == (cuda_process, 3 << 30)
    assert process.name.startswith("python")


def test_numbers_of_another_pid_namespace_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is nobody's here, and one that is somebody's who has nothing to do with CUDA."""
    on_the_gpu(monkeypatch, 2**22 + 1, os.getpid())
    assert compute_processes("GPU-1") == []


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    with pytest.raises(NVMLError, match="cannot be used: NVML Shared Library Not Found"):
        compute_processes("GPU-1")


def test_a_gpu_that_it_does_not_know_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(uuid: str) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", fails)
    with pytest.raises(NVMLError, match="cannot list the processes on GPU-1: Not Found"):
        compute_processes("GPU-1")
