"""A simulated GPU: it behaves as physics says, and as badly as a test says."""

from __future__ import annotations

import math
import threading

import pytest
from tests.devices.fake_nvml import GIB, FakeGPU, FakeNVML

from treadle.clock import ManualClock
from treadle.devices.check import check_device
from treadle.devices.device import DeviceError, DeviceGoneError, Link, Reading, Severity
from treadle.devices.nvidia import NVML, NvidiaGPU
from treadle.devices.simulated import Board, SimulatedGPU

PATIENCE_SECONDS = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(10.0)


@pytest.fixture
def gpu(clock: ManualClock) -> SimulatedGPU:
    return SimulatedGPU(clock, seed=1)


def read(gpu: SimulatedGPU, source: str) -> list[Reading]:
    (found,) = [one for one in gpu.sources() if one.name == source]
    return list(found.read())


def value(gpu: SimulatedGPU, metric: str) -> float:
    for source in gpu.sources():
        if metric in source.metrics:
            found = [reading.value for reading in source.read() if reading.metric == metric][-1]
            assert found is not None
            return found
    raise AssertionError(metric)


def test_it_keeps_the_interface_idle_and_at_work(gpu: SimulatedGPU, clock: ManualClock) -> None:
    check_device(gpu, between=lambda: clock.advance(0.15))
    gpu.start_process(7, "trainer", memory_bytes=GIB, sm_activity=0.5)
    gpu.load(sm=1.0, tensor=1.0, dram=1.0)
    gpu.traffic(pcie_sent=1e9, nvlink_received=5e9)
    check_device(gpu, between=lambda: clock.advance(0.15))


def test_its_sources_are_those_of_an_nvidia_gpu(gpu: SimulatedGPU) -> None:
    real = NvidiaGPU(NVML(FakeNVML(FakeGPU())), 0)
    assert [
        (one.name, one.metrics, one.refresh_seconds, one.cost_seconds) for one in gpu.sources()
    ] == [(one.name, one.metrics, one.refresh_seconds, one.cost_seconds) for one in real.sources()]


def test_the_same_seed_gives_the_same_readings_however_often_it_is_read() -> None:
    def run(seed: int, steps: int) -> list[Reading]:
        clock = ManualClock()
        gpu = SimulatedGPU(clock, seed=seed)
        gpu.load(sm=0.7, tensor=0.4, dram=0.2)
        found = []
        for _ in range(steps):
            clock.advance(2.0 / steps)
            found += read(gpu, "nvml.power-samples")
        return found

    assert [r.value for r in run(1, 4)] == [r.value for r in run(1, 16)]
    assert [r.value for r in run(1, 4)] != [r.value for r in run(2, 4)]


def test_power_and_clock_are_those_that_were_measured(
    gpu: SimulatedGPU, clock: ManualClock
) -> None:
    clock.advance(1.0)
    assert value(gpu, "power") == pytest.approx(78.7, abs=3)
    assert value(gpu, "sm_clock") == 345e6
    gpu.start_process(7, "trainer")
    clock.advance(1.0)
    assert value(gpu, "power") == pytest.approx(122.3, abs=3)
    assert value(gpu, "sm_clock") == 1980e6
    gpu.load(sm=1.0, tensor=1.0, dram=1.0)
    clock.advance(1.0)
    assert value(gpu, "power") == pytest.approx(700, abs=4)
    assert value(gpu, "sm_clock") == pytest.approx(1470e6, rel=0.02)


def test_the_power_limit_lowers_the_clock_and_says_so(
    gpu: SimulatedGPU, clock: ManualClock
) -> None:
    gpu.load(sm=0.5, tensor=0.2, dram=0.2)
    clock.advance(0.1)
    assert (value(gpu, "throttled_power"), value(gpu, "sm_clock")) == (0, 1980e6)
    gpu.limit_power(250.0)
    clock.advance(0.1)
    assert value(gpu, "throttled_power") == 1
    assert value(gpu, "sm_clock") < 1980e6
    assert value(gpu, "power") < 253
    assert value(gpu, "power_limit") == gpu.info.power_limit_watts == 250.0
    gpu.load(sm=0.0, tensor=0.0, dram=0.0)
    clock.advance(0.1)
    assert value(gpu, "throttled_power") == 0
    assert [event.kind for event in gpu.events()] == ["throttle-start", "throttle-end"]


# seconds after the step from 122 to 691 W, and after the step back: degrees as measured
WARMING = [(0.1, 51, 2), (0.5, 55, 2), (2.0, 58, 2), (10.0, 59, 2), (40.0, 60, 1)]
COOLING = [(0.1, 50, 2), (0.5, 45, 2), (2.0, 41, 2), (10.0, 40, 1), (20.0, 40, 1)]


def test_it_warms_and_cools_as_the_measured_one(clock: ManualClock) -> None:
    gpu = SimulatedGPU(clock, power_limit_watts=691.0)
    gpu.start_process(7, "trainer")
    clock.advance(600.0)
    assert value(gpu, "temperature") == pytest.approx(39, abs=1)
    for steps, load in ((WARMING, 1.0), (COOLING, 0.0)):
        gpu.load(sm=load, tensor=load, dram=load)
        passed = 0.0
        for seconds, degrees, within in steps:
            clock.advance(seconds - passed)
            passed = seconds
            assert value(gpu, "temperature") == pytest.approx(degrees, abs=within), seconds


def test_heat_slows_it_down_until_it_has_cooled(clock: ManualClock) -> None:
    gpu = SimulatedGPU(clock, board=Board(ambient_celsius=70.0))
    gpu.load(sm=1.0, tensor=1.0, dram=1.0)
    clock.advance(1.0)
    assert value(gpu, "throttled_thermal") == 1
    assert value(gpu, "sm_clock") <= 990e6
    gpu.load(sm=0.0, tensor=0.0, dram=0.0)
    clock.advance(60.0)
    assert value(gpu, "throttled_thermal") == 0


def test_it_can_be_told_to_throttle(clock: ManualClock) -> None:
    gpu = SimulatedGPU(clock)
    gpu.throttle(thermal=True)
    gpu.load(sm=1.0)
    assert value(gpu, "throttled_thermal") == 1
    assert value(gpu, "sm_clock") <= 990e6
    gpu.throttle(thermal=False, other=True)
    assert (value(gpu, "throttled_thermal"), value(gpu, "throttled_other")) == (0, 1)


def test_energy_is_power_over_time_also_over_a_long_pause(
    gpu: SimulatedGPU, clock: ManualClock
) -> None:
    before = value(gpu, "energy")
    clock.advance(3600.0)
    assert value(gpu, "energy") - before == pytest.approx(78.7 * 3600, rel=1e-6)
    assert value(gpu, "gpu_utilization") == 0
    assert read(gpu, "nvml.power-samples")[-1].sampled_at == pytest.approx(3610.0, abs=0.021)


def test_windows_are_means(gpu: SimulatedGPU, clock: ManualClock) -> None:
    read(gpu, "nvml.gpm")
    gpu.load(sm=0.8, dram=0.4)
    clock.advance(0.05)
    gpu.load(sm=0.0, dram=0.0)
    clock.advance(0.15)
    assert value(gpu, "sm_activity") == pytest.approx(0.2)
    assert value(gpu, "dram_activity") == pytest.approx(0.1)
    clock.advance(0.01)
    assert value(gpu, "gpu_utilization") == pytest.approx(0.25)


def test_traffic_is_counted(gpu: SimulatedGPU, clock: ManualClock) -> None:
    gpu.traffic(pcie_sent=1e9)
    clock.advance(2.0)
    gpu.traffic(pcie_sent=0.0)
    clock.advance(2.0)
    assert value(gpu, "pcie_sent") == pytest.approx(2e9)
    assert value(gpu, "pcie_received") == 0


def test_its_books_balance(gpu: SimulatedGPU) -> None:
    gpu.check_integrity()
    gpu.allocate("weights", 10 * GIB)
    gpu.start_process(7, "trainer", memory_bytes=GIB)
    gpu.check_integrity()
    assert value(gpu, "memory_used") == 11 * GIB
    with pytest.raises(DeviceError, match="out of memory: cache asks for"):
        gpu.allocate("cache", 200 * GIB)
    with pytest.raises(ValueError, match="weights holds"):
        gpu.free("weights", 11 * GIB)
    assert gpu.free("weights", 4 * GIB) == 4 * GIB
    assert gpu.free("weights") == 6 * GIB
    gpu.end_process(7)
    gpu.check_integrity()
    assert value(gpu, "memory_used") == 0


def test_processes_are_listed_and_told(gpu: SimulatedGPU) -> None:
    gpu.start_process(7, "trainer", memory_bytes=GIB, sm_activity=0.5)
    (process,) = gpu.processes()
    assert (process.pid, process.name, process.memory_bytes) == (7, "trainer", GIB)
    assert value(gpu, "processes") == 1
    with pytest.raises(ValueError, match="process 7 has a context already"):
        gpu.start_process(7, "another")
    gpu.end_process(7)
    assert [event.kind for event in gpu.events()] == ["process-start", "process-end"]
    assert list(gpu.processes()) == []


@pytest.mark.parametrize("part", [-0.1, 1.1, math.nan])
def test_a_load_that_cannot_be_is_refused(gpu: SimulatedGPU, part: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to 1"):
        gpu.load(sm=part)


def test_a_source_that_fails_fails_alone_and_heals(gpu: SimulatedGPU) -> None:
    gpu.faults.fail("nvml.memory", "no answer")
    with pytest.raises(DeviceError, match=r"nvml\.memory: no answer"):
        read(gpu, "nvml.memory")
    assert value(gpu, "temperature") > 0
    gpu.faults.heal("nvml.memory")
    assert value(gpu, "memory_free") > 0


def test_a_fault_of_a_source_that_there_is_not_is_refused(gpu: SimulatedGPU) -> None:
    for fault in (gpu.faults.fail, gpu.faults.hang):
        with pytest.raises(ValueError, match=r"no source 'nvml\.moon'"):
            fault("nvml.moon")


@pytest.mark.parametrize("garbage", [math.nan, -1.0, float(0xFFFFFFFF)])
def test_garbage_comes_out_as_it_is_and_the_check_finds_it(
    gpu: SimulatedGPU, clock: ManualClock, garbage: float
) -> None:
    clock.advance(1.0)
    gpu.faults.garbage("nvml.power-samples", garbage)
    assert {reading.value for reading in read(gpu, "nvml.power-samples")} == {garbage}
    with pytest.raises(DeviceError, match=r"nvml\.power-samples: power is"):
        check_device(gpu, between=lambda: clock.advance(0.15))


def test_a_source_that_hangs_holds_its_reader_until_it_is_released(gpu: SimulatedGPU) -> None:
    hang = gpu.faults.hang("nvml.gpm")
    found: list[Reading] = []
    reader = threading.Thread(target=lambda: found.extend(read(gpu, "nvml.gpm")), daemon=True)
    reader.start()
    assert hang.wait_until_entered(PATIENCE_SECONDS)
    assert reader.is_alive()
    assert value(gpu, "temperature") > 0  # the others answer meanwhile
    hang.release()
    reader.join(PATIENCE_SECONDS)
    assert len(found) == 7


def test_a_device_that_vanishes_is_gone_for_all_also_for_who_hangs(gpu: SimulatedGPU) -> None:
    hang = gpu.faults.hang("nvml.gpm")
    errors: list[str] = []

    def run() -> None:
        try:
            read(gpu, "nvml.gpm")
        except DeviceGoneError as error:
            errors.append(str(error))

    reader = threading.Thread(target=run, daemon=True)
    reader.start()
    assert hang.wait_until_entered(PATIENCE_SECONDS)
    gpu.vanish()
    reader.join(PATIENCE_SECONDS)
    assert len(errors) == 1
    assert "fallen off the bus" in errors[0]
    for source in gpu.sources():
        with pytest.raises(DeviceGoneError):
            source.read()
    with pytest.raises(DeviceGoneError):
        gpu.processes()
    assert [event.kind for event in gpu.events()] == ["gone"]
    assert list(gpu.events()) == []


def test_errors_are_told_and_counted(gpu: SimulatedGPU) -> None:
    gpu.xid(79, "made up")
    gpu.ecc(corrected=3)
    gpu.ecc(uncorrected=1)
    told = [(event.kind, event.severity) for event in gpu.events()]
    assert told == [("xid", Severity.ERROR), ("ecc", Severity.ERROR)]
    assert (value(gpu, "ecc_corrected"), value(gpu, "ecc_uncorrected")) == (3, 1)


def test_two_are_linked_both_ways_and_are_not_the_same(clock: ManualClock) -> None:
    first, second = SimulatedGPU(clock), SimulatedGPU(clock, index=1)
    first.link(second)
    assert first.links() == (Link(second.info.uuid, "NVLink x18"),)
    assert second.links() == (Link(first.info.uuid, "NVLink x18"),)
    assert first.info.uuid != second.info.uuid


def test_it_has_the_mechanisms_that_it_is_given(clock: ManualClock) -> None:
    gpu = SimulatedGPU(clock, mechanisms=["MPS"])
    assert [one.name for one in gpu.mechanisms() if one.available] == ["MPS"]
    with pytest.raises(ValueError, match="no mechanisms"):
        SimulatedGPU(clock, mechanisms=["magic"])
