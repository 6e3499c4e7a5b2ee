"""Processes on an NVIDIA GPU, told by a library that is not here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.devices.fake_nvml import FakeGPU, FakeNVML

from treadle.devices.device import DeviceError, DeviceGoneError
from treadle.devices.nvidia import NVML, NvidiaGPU, compute_processes, load

ELSEWHERE = 2**22 + 1
"""No pid of this namespace can be so high."""


@pytest.fixture
def gpu() -> FakeGPU:
    return FakeGPU()


@pytest.fixture
def library(gpu: FakeGPU) -> FakeNVML:
    return FakeNVML(gpu)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Starts processes that have mapped something by the name of libcuda, under a name."""
    program = (
        "import ctypes, mmap, sys; f = open('libcuda.so.1', 'w+b'); f.truncate(4096); "
        "m = mmap.mmap(f.fileno(), 4096); "
        "name = ctypes.create_string_buffer(sys.argv[1].encode()); "
        "ctypes.CDLL(None).prctl(15, name, 0, 0, 0); print('mapped', flush=True); sys.stdin.read()"
    )
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", program, name],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"mapped\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_is_named(gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int]) -> None:
    gpu.processes = [(start("trainer"), 3 << 30)]
    (process,) = compute_processes("GPU-1", NVML(library))
    assert (process.pid, process.memory_bytes) == (gpu.processes[0][0], 3 << 30)
    assert process.name == "trainer"


def test_numbers_of_another_pid_namespace_are_left_out(gpu: FakeGPU, library: FakeNVML) -> None:
    """One that is nobody's here, and one that is somebody's who has nothing to do with CUDA."""
    gpu.processes = [(ELSEWHERE, None), (os.getpid(), None)]
    assert compute_processes("GPU-1", NVML(library)) == []


def test_a_gpu_that_it_does_not_know_is_said(library: FakeNVML) -> None:
    with pytest.raises(DeviceError, match=r"cannot list the processes on GPU-7: .*nothing of it"):
        compute_processes("GPU-7", NVML(library))


def test_a_missing_library_is_said(library: FakeNVML) -> None:
    library.fails["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    with pytest.raises(DeviceError, match="no NVIDIA driver is installed"):
        load(library)


def test_without_a_driver_the_real_binding_says_so() -> None:
    try:
        load()
    except DeviceError as error:
        assert str(error)  # noqa: PT017 - machines with a driver have nothing to say
    else:
        assert pynvml.nvmlDeviceGetCount() >= 0


@pytest.mark.parametrize("repeats", [False, True])
def test_a_monitor_sees_memory_and_work_of_each(
    gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int], repeats: bool
) -> None:
    gpu.repeats = repeats
    busy, idle = start("busy"), start("idle")
    gpu.processes = [(idle, None), (busy, 1 << 30)]
    gpu.utilization = [(busy, 100, 40), (busy, 200, 60)]
    device = NvidiaGPU(NVML(library), 0)
    found = {process.pid: process for process in device.processes()}
    assert (found[busy].sm_activity, found[busy].reason) == (0.6, "")  # the newest sample
    assert (found[idle].memory_bytes, found[idle].sm_activity) == (None, None)
    assert "does not tell its memory" in found[idle].reason
    assert "no sample of it" in found[idle].reason
    again = {process.pid: process for process in device.processes()}
    assert again[busy].sm_activity is None  # a sample is news once


def test_a_time_of_day_that_is_set_back_hides_nobodys_work(
    gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int]
) -> None:
    worker, wall = start("worker"), [7200.0]
    gpu.processes = [(worker, 1 << 30)]
    gpu.utilization = [(worker, 7_199_000_000, 40)]
    device = NvidiaGPU(NVML(library), 0, wall=lambda: wall[0])
    assert device.processes()[0].sm_activity == 0.4
    wall[0] = 3600.0
    gpu.utilization = [(worker, 3_599_000_000, 60)]
    assert device.processes()[0].sm_activity == 0.6


def test_a_process_of_another_namespace_has_no_pid_and_says_why(
    gpu: FakeGPU, library: FakeNVML
) -> None:
    gpu.processes = [(ELSEWHERE, 2 << 30)]
    (process,) = NvidiaGPU(NVML(library), 0).processes()
    assert (process.pid, process.name, process.memory_bytes) == (None, "", 2 << 30)
    assert f"another pid namespace: the driver's number {ELSEWHERE}" in process.reason


def test_under_mps_no_client_has_figures_of_its_own(
    gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int]
) -> None:
    server, client = start("nvidia-cuda-mps-server"), start("client")
    gpu.processes = [(server, 1 << 20), (client, 1 << 30)]
    gpu.utilization = [(server, 100, 80), (client, 100, 80)]
    for process in NvidiaGPU(NVML(library), 0).processes():
        assert process.sm_activity is None
        assert "under MPS" in process.reason


def test_with_mig_on_work_is_not_counted_by_process(
    gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int]
) -> None:
    gpu.mig, gpu.processes = True, [(start("worker"), 1 << 30)]
    (process,) = NvidiaGPU(NVML(library), 0).processes()
    assert process.sm_activity is None
    assert "with MIG on" in process.reason


def test_a_list_that_fails_is_an_error_and_a_use_that_fails_a_reason(
    gpu: FakeGPU, library: FakeNVML, start: Callable[[str], int]
) -> None:
    gpu.processes = [(start("worker"), 1 << 30)]
    device = NvidiaGPU(NVML(library), 0)
    library.fails["nvmlDeviceGetProcessUtilization"] = pynvml.NVML_ERROR_UNKNOWN
    (process,) = device.processes()
    assert "Unknown Error" in process.reason
    library.fails["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(DeviceError, match="Unknown Error"):
        device.processes()
    gpu.lost = True
    library.fails.clear()
    with pytest.raises(DeviceGoneError):
        device.processes()
