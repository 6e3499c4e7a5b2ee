"""An NVIDIA GPU, told by a library that is not here."""

from __future__ import annotations

import math
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.devices.fake_nvml import GIB, NOT_AVAILABLE, FakeGPU, FakeNVML

from treadle.clock import ManualClock
from treadle.devices.check import check_device
from treadle.devices.device import DeviceError, DeviceGoneError, Link, Reading
from treadle.devices.mechanisms import Host
from treadle.devices.nvidia import NVML, NvidiaGPU, nvidia_gpus
from treadle.errors import TreadleError

DAY_SECONDS = 1_000_000.0
"""The time of day when the manual clock is at 0."""


def no_mps() -> Path:
    raise TreadleError("MPS: none here")


class World:
    """One GPU, its library and the time."""

    def __init__(self, gpu: FakeGPU | None = None, *others: FakeGPU, root: Path) -> None:
        self.clock = ManualClock(100.0)
        self.gpu = gpu or FakeGPU()
        self.library = FakeNVML(self.gpu, *others, clock=self.clock.now)
        self.host = Host(root=root, mps_control=no_mps, driver_has=lambda name: True)
        self.wall_offset = DAY_SECONDS

    def open(self) -> NvidiaGPU:
        return NvidiaGPU(NVML(self.library), 0, clock=self.clock, wall=self.wall, host=self.host)

    def wall(self) -> float:
        return self.clock.now() + self.wall_offset

    def power(self, *samples: tuple[float, int]) -> None:
        """Samples at so many seconds of the clock, in milliwatts."""
        stamped = [(round((at + self.wall_offset) * 1e6), value) for at, value in samples]
        self.gpu.power_samples += stamped


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(root=tmp_path)


def read(device: NvidiaGPU, source: str) -> list[Reading]:
    (found,) = [one for one in device.sources() if one.name == source]
    return list(found.read())


def values(device: NvidiaGPU, source: str) -> dict[str, float | None]:
    return {reading.metric: reading.value for reading in read(device, source)}


def reason(device: NvidiaGPU, source: str, metric: str) -> str:
    (found,) = [one for one in read(device, source) if one.metric == metric]
    assert found.value is None
    return found.reason


def test_it_keeps_the_interface_and_gives_everything_back(world: World) -> None:
    world.power((99.98, 120_000), (100.0, 121_000))
    check_device(world.open(), between=lambda: world.clock.advance(0.15))
    assert (world.library.open_samples, world.library.open_event_sets) == (0, 0)


def test_what_does_not_change(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:06:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    info = world.open().info
    assert (info.uuid, info.name, info.cores) == ("GPU-1", "NVIDIA H200", 132)
    assert (info.memory_bytes, info.driver) == (141 * GIB, "580.159.04/13.0")
    assert (info.partition, info.bus_id, info.numa_node) == ("off", "00000000:06:00.0", 1)
    assert (info.host_cores, info.power_limit_watts) == ((0, 1, 2, 3), 700.0)


def test_a_numa_node_of_minus_one_is_none(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:06:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("-1\n")
    assert world.open().info.numa_node is None


def test_calls_that_block_or_cost_too_much_are_never_made(world: World) -> None:
    device = world.open()
    for _ in range(3):
        for source in device.sources():
            source.read()
        device.events()
        world.clock.advance(0.2)
    slow = {
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetViolationStatus",
        "nvmlDeviceGetTemperatureThreshold",
    }
    assert not slow & set(world.library.calls)


def test_a_gpu_tells_its_figures_in_the_units_of_the_metrics(world: World) -> None:
    world.gpu.used, world.gpu.ecc, world.gpu.fans = 3 * GIB, (7, 1), (30, 110)
    device = world.open()
    assert values(device, "nvml.utilization") == {"gpu_utilization": 0.4, "memory_utilization": 0.1}
    assert values(device, "nvml.memory") == {
        "memory_used": 3 * GIB,
        "memory_free": 137.5 * GIB,
        "memory_reserved": 0.5 * GIB,
    }
    assert values(device, "nvml.temperature") == {"temperature": 38, "memory_temperature": 41}
    assert values(device, "nvml.energy") == {"energy": 5.0}
    clocks = values(device, "nvml.clocks")
    assert (clocks["sm_clock"], clocks["memory_clock"]) == (1.98e9, 3.201e9)
    board = values(device, "nvml.board")
    assert (board["power_limit"], board["fan_speed"]) == (700.0, 1.0)
    assert (board["ecc_corrected"], board["ecc_uncorrected"]) == (7, 1)
    assert board["bar1_used"] == 1 << 20


def test_a_server_card_has_no_fans_and_says_so(world: World) -> None:
    assert reason(world.open(), "nvml.board", "fan_speed") == "it has no fans of its own"


# what the driver answers for the GPU's utilisation, memory or temperature
GARBAGE = [NOT_AVAILABLE, (1 << 64) - 1, -1, math.nan, math.inf, 150_000]


@pytest.mark.parametrize("answer", GARBAGE)
def test_garbage_is_no_figure(world: World, answer: float) -> None:
    world.gpu.gpu = world.gpu.temperature = answer
    device = world.open()
    assert "driver" in reason(device, "nvml.utilization", "gpu_utilization")
    assert "driver" in reason(device, "nvml.temperature", "temperature")
    assert values(device, "nvml.temperature")["memory_temperature"] == 41  # the others stay


def test_a_clock_that_is_not_available_is_none(world: World) -> None:
    world.gpu.sm_clock = NOT_AVAILABLE
    assert "not available" in reason(world.open(), "nvml.clocks", "sm_clock")


def test_memory_that_is_not_available_is_none(world: World) -> None:
    device = world.open()
    world.gpu.used = (1 << 64) - 1
    assert "not available" in reason(device, "nvml.memory", "memory_used")


def test_an_unknown_performance_state_is_none(world: World) -> None:
    world.gpu.performance_state = 32
    assert "does not know" in reason(world.open(), "nvml.clocks", "performance_state")


# mask -> power, thermal, other
MASKS = [
    (0x0, (0, 0, 0)),
    (0x1, (0, 0, 0)),
    (0x4, (1, 0, 0)),
    (0x80 | 0x8, (1, 0, 0)),
    (0x20, (0, 1, 0)),
    (0x40 | 0x8, (0, 1, 0)),
    (0x8, (0, 0, 1)),
    (0x2, (0, 0, 1)),
    (0x4 | 0x20 | 0x10, (1, 1, 1)),
]


@pytest.mark.parametrize(("mask", "held"), MASKS)
@pytest.mark.parametrize("old", [False, True], ids=["new name", "old name"])
def test_why_clocks_are_held_down(
    world: World, mask: int, held: tuple[int, int, int], old: bool
) -> None:
    world.gpu.throttle = mask
    if old:
        name = "nvmlDeviceGetCurrentClocksEventReasons"
        world.library.fails[name] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    clocks = values(world.open(), "nvml.clocks")
    names = ("throttled_power", "throttled_thermal", "throttled_other")
    assert tuple(clocks[name] for name in names) == held


@pytest.mark.parametrize("repeats", [False, True])
def test_power_samples_come_once_each_with_their_own_time(world: World, repeats: bool) -> None:
    world.gpu.repeats = repeats
    device = world.open()
    world.power((99.96, 120_000), (99.98, 130_000))
    first = read(device, "nvml.power-samples")
    assert [(round(r.sampled_at, 3), r.value) for r in first] == [(99.96, 120.0), (99.98, 130.0)]
    world.power((100.0, 140_000))
    world.clock.advance(0.01)
    assert [r.value for r in read(device, "nvml.power-samples")] == [140.0]


def test_without_a_new_sample_the_last_one_comes_again_and_is_no_younger(world: World) -> None:
    device = world.open()
    world.power((100.0, 120_000))
    (before,) = read(device, "nvml.power-samples")
    world.clock.advance(5.0)
    assert read(device, "nvml.power-samples") == [before]


def test_power_takes_one_call_of_the_driver(world: World) -> None:
    device = world.open()
    for step in range(5):
        world.power((100.0 + step, 120_000 + step))
        world.library.calls.clear()
        assert [r.value for r in read(device, "nvml.power-samples")] == [(120_000 + step) / 1000]
        assert world.library.calls == ["nvmlDeviceGetSamples"]
        world.clock.advance(1.0)


@pytest.mark.parametrize("cuts", [False, True], ids=["refused", "filled"])
def test_more_samples_than_there_is_place_for_all_come(world: World, cuts: bool) -> None:
    world.library.cuts_samples = cuts
    device = world.open()
    world.clock.advance(100.0)
    world.power(*((100.0 + n / 50, 100_000 + n) for n in range(3000)))
    found = read(device, "nvml.power-samples")
    assert [reading.value for reading in found] == [(100_000 + n) / 1000 for n in range(3000)]
    world.power((200.0, 50_000))
    world.library.calls.clear()
    assert [reading.value for reading in read(device, "nvml.power-samples")] == [50.0]
    assert world.library.calls == ["nvmlDeviceGetSamples"]


@pytest.mark.parametrize("missing", ["_nvmlGetFunctionPointer", "nvmlDeviceGetSamples"])
def test_power_by_a_binding_without_its_inner_function(world: World, missing: str) -> None:
    world.library.missing.add(missing)
    device = world.open()
    world.power((100.0, 120_000))
    if missing == "nvmlDeviceGetSamples":
        assert "does not know" in reason(device, "nvml.power-samples", "power")
    else:
        assert values(device, "nvml.power-samples") == {"power": 120.0}


def test_samples_that_the_driver_cannot_give_fail_as_any_call_does(world: World) -> None:
    device = world.open()
    world.library.fails["nvmlDeviceGetSamples"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert "may not ask" in reason(device, "nvml.power-samples", "power")
    world.library.fails["nvmlDeviceGetSamples"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(DeviceError, match="nvmlDeviceGetSamples: Unknown Error"):
        read(device, "nvml.power-samples")


def test_a_gpu_without_samples_yet_says_so(world: World) -> None:
    assert "nvmlDeviceGetSamples" in reason(world.open(), "nvml.power-samples", "power")


def test_a_time_of_day_that_is_set_back_stops_no_power(world: World) -> None:
    device = world.open()
    world.power((100.0, 120_000))
    (before,) = read(device, "nvml.power-samples")
    world.clock.advance(1.0)
    world.wall_offset -= 3600.0
    world.gpu.power_samples.clear()
    world.power((101.0, 130_000))
    (after,) = read(device, "nvml.power-samples")
    assert after.value == 130.0
    assert before.sampled_at < after.sampled_at <= world.clock.now()


def test_samples_from_the_future_are_of_now(world: World) -> None:
    world.power((200.0, 120_000))
    (sample,) = read(world.open(), "nvml.power-samples")
    assert sample.sampled_at == world.clock.now()


def test_activity_is_a_mean_over_no_less_than_the_driver_refreshes(world: World) -> None:
    device = world.open()
    assert reason(device, "nvml.gpm", "sm_activity") == "its first window is not over"
    world.clock.advance(0.03)
    assert reason(device, "nvml.gpm", "dram_activity") == "its first window is not over"
    world.clock.advance(0.08)
    readings = read(device, "nvml.gpm")
    assert [reading.value for reading in readings] == [0.5] * 7
    assert readings[0].window_seconds == pytest.approx(0.11)
    world.clock.advance(0.03)
    assert read(device, "nvml.gpm") == readings  # the last window, no younger than it is
    assert world.library.calls.count("nvmlGpmSampleGet") == 2
    assert world.library.open_samples == 2


@pytest.mark.parametrize("answer", [math.nan, 250.0, -5.0])
def test_activity_that_cannot_be_is_none(world: World, answer: float) -> None:
    world.gpu.gpm = answer
    device = world.open()
    read(device, "nvml.gpm")
    world.clock.advance(0.1)
    assert "driver answers" in reason(device, "nvml.gpm", "sm_activity")


def test_links_count_bytes_over_the_wrap_of_32_bits(world: World) -> None:
    sent, nvlink = (
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    )
    world.gpu.fields = {sent: (1 << 32) - 10, nvlink: 3}
    device = world.open()
    before = values(device, "nvml.links")
    assert (before["pcie_sent"], before["nvlink_sent"]) == ((1 << 32) - 10, 3 * 1024)
    world.gpu.fields[sent] = 5
    assert values(device, "nvml.links")["pcie_sent"] == (1 << 32) + 5
    assert "does not support" in reason(device, "nvml.links", "pcie_received")


def test_a_counter_that_starts_again_is_not_taken_for_a_wrap(world: World) -> None:
    field = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    world.gpu.fields = {field: 1000}
    device = world.open()
    read(device, "nvml.links")
    world.gpu.fields[field] = 5
    assert values(device, "nvml.links")["pcie_sent"] == 5


def test_a_figure_that_may_not_be_read_says_so_and_the_others_come(world: World) -> None:
    world.library.fails["nvmlDeviceGetTotalEccErrors"] = pynvml.NVML_ERROR_NO_PERMISSION
    device = world.open()
    assert "may not ask" in reason(device, "nvml.board", "ecc_corrected")
    assert values(device, "nvml.board")["power_limit"] == 700.0


def test_a_function_that_the_binding_does_not_know_is_a_reason(world: World) -> None:
    world.library.missing.add("nvmlDeviceGetTotalEnergyConsumption")
    assert "does not know" in reason(world.open(), "nvml.energy", "energy")


def test_a_call_that_fails_fails_its_source_only(world: World) -> None:
    world.library.fails["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_UNKNOWN
    device = world.open()
    with pytest.raises(DeviceError, match="nvmlDeviceGetUtilizationRates: Unknown Error"):
        read(device, "nvml.utilization")
    assert values(device, "nvml.temperature")["temperature"] == 38


def test_one_failing_call_of_several_costs_one_figure(world: World) -> None:
    world.library.fails["nvmlDeviceGetTotalEccErrors"] = pynvml.NVML_ERROR_UNKNOWN
    device = world.open()
    assert "Unknown Error" in reason(device, "nvml.board", "ecc_corrected")
    world.library.fails |= {
        f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_UNKNOWN
        for name in (
            *("EnforcedPowerLimit", "EncoderUtilization", "DecoderUtilization"),
            "BAR1MemoryInfo",
        )
    }
    with pytest.raises(DeviceError, match="Unknown Error"):
        read(device, "nvml.board")


def test_a_gpu_that_is_lost_is_gone_for_every_source(world: World) -> None:
    device = world.open()
    world.gpu.lost = True
    for source in device.sources():
        with pytest.raises(DeviceGoneError, match="fallen off the bus"):
            source.read()
    with pytest.raises(DeviceGoneError):
        device.processes()
    device.close()


def test_a_gpu_that_cannot_be_opened_does_not_hide_the_others(world: World) -> None:
    library = FakeNVML(FakeGPU(lost=True), FakeGPU(uuid="GPU-2"))
    gpus, reasons = nvidia_gpus(NVML(library), clock=world.clock, host=world.host)
    assert [gpu.info.uuid for gpu in gpus] == ["GPU-2"]
    assert len(reasons) == 1
    assert reasons[0].startswith("GPU 0 cannot be used: ")


@pytest.mark.parametrize(
    ("nvlinks", "links"),
    [
        ((), [Link("GPU-2", "same host bridge")]),
        ((9, 9, 9), [Link("GPU-2", "NVLink x3")]),
        ((8, 8), [Link("GPU-2", "same host bridge")]),
        ((-1,) * 18, [Link("GPU-2", "NVLink x18")]),
    ],
    ids=["none", "direct", "to another GPU", "over switches"],
)
def test_links(tmp_path: Path, nvlinks: tuple[int, ...], links: list[Link]) -> None:
    world = World(FakeGPU(nvlinks=nvlinks), FakeGPU(uuid="GPU-2", bus=9), root=tmp_path)
    assert world.open().links() == links


def test_with_mig_on_it_says_what_is_no_longer_told(world: World) -> None:
    world.gpu.mig, world.gpu.instances = True, ("1g.18gb", "3g.71gb")
    device = world.open()
    assert device.info.partition == "1g.18gb, 3g.71gb"
    assert "does not support" in reason(device, "nvml.utilization", "gpu_utilization")
    read(device, "nvml.gpm")
    world.clock.advance(0.2)
    assert "does not support" in reason(device, "nvml.gpm", "sm_activity")
    check_device(device, between=lambda: world.clock.advance(0.15))


@pytest.mark.parametrize(
    ("mig", "instances", "partition"),
    [(None, (), ""), (False, (), "off"), (True, (), "on, without instances")],
)
def test_partition(world: World, mig: bool | None, instances: tuple[str], partition: str) -> None:
    world.gpu.mig, world.gpu.instances = mig, instances
    assert world.open().info.partition == partition
