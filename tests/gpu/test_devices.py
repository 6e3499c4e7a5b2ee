"""Real GPUs as devices: they keep the interface, and move when there is work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gpu.conftest import Floor, Gpus, eventually

from treadle.devices.check import check_device
from treadle.devices.device import DeviceKind, MonitoredDevice
from treadle.devices.find import find_devices

pytestmark = pytest.mark.gpu


@pytest.fixture
def devices(gpus: Gpus) -> Iterator[list[MonitoredDevice]]:
    pytest.importorskip("pynvml")
    found, reasons = find_devices(environment={})
    nvidia = [device for device in found if device.info.kind is DeviceKind.NVIDIA]
    assert len(nvidia) >= len(gpus.uuids), reasons
    yield nvidia
    for device in found:
        device.close()


def latest(device: MonitoredDevice, metric: str) -> float | None:
    """The newest value of a metric."""
    (source,) = [one for one in device.sources() if metric in one.metrics]
    return [reading.value for reading in source.read() if reading.metric == metric][-1]


def test_every_gpu_keeps_the_interface(devices: list[MonitoredDevice]) -> None:
    for device in devices:
        check_device(device)


def test_the_gpus_are_those_that_cuda_sees(gpus: Gpus, devices: list[MonitoredDevice]) -> None:
    assert set(gpus.uuids) <= {device.info.uuid for device in devices}


def test_work_is_seen_and_so_is_who_does_it(floor: Floor, devices: list[MonitoredDevice]) -> None:
    (device,) = [one for one in devices if one.info.uuid == floor.gpus[0]]
    device.events()
    idle = latest(device, "memory_used")
    program = floor.run("training")
    program.expect("ready")

    def busy() -> bool:
        return (latest(device, "gpu_utilization") or 0.0) > 0

    eventually(busy, "the GPU is busy")
    used = latest(device, "memory_used")
    assert idle is not None
    assert used is not None
    assert used > idle
    assert len(device.processes()) >= 1


@pytest.mark.gpu(2)
def test_two_gpus_know_of_each_other(devices: list[MonitoredDevice]) -> None:
    uuids = {device.info.uuid for device in devices}
    for device in devices:
        assert {link.peer for link in device.links()} == uuids - {device.info.uuid}
