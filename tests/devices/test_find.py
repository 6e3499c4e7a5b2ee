"""Which devices a machine has, and why one is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.devices.fake_nvml import FakeGPU, FakeNVML

from treadle.clock import ManualClock
from treadle.devices.device import DeviceKind
from treadle.devices.find import find_devices
from treadle.errors import ConfigError


def found(library: object, **environment: str) -> tuple[list[tuple[str, int]], list[str]]:
    devices, reasons = find_devices(
        clock=ManualClock(), environment=environment, nvml_module=library
    )
    kinds = [(device.info.kind.value, device.info.index) for device in devices]
    for device in devices:
        device.close()
    return kinds, reasons


# why the library cannot be used -> what is said
WITHOUT_GPU = [
    (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed here"),
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
    (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "are of different versions"),
    (pynvml.NVML_ERROR_NO_PERMISSION, "may not ask"),
    (pynvml.NVML_ERROR_UNKNOWN, "Unknown Error"),
]


@pytest.mark.parametrize(("code", "said"), WITHOUT_GPU)
def test_without_a_gpu_there_is_the_cpu_and_the_reason(code: int, said: str) -> None:
    library = FakeNVML(FakeGPU())
    library.fails["nvmlInit"] = code
    kinds, reasons = found(library)
    assert kinds == [("cpu", 0)]
    assert len(reasons) == 1
    assert reasons[0].startswith("no NVIDIA GPU: ")
    assert said in reasons[0]


def test_a_driver_without_a_gpu_says_so() -> None:
    assert found(FakeNVML()) == ([("cpu", 0)], ["the NVIDIA driver is loaded, but lists no GPU"])


def test_gpus_take_the_place_of_the_cpu() -> None:
    library = FakeNVML(FakeGPU(), FakeGPU(uuid="GPU-2"))
    assert found(library) == ([("nvidia", 0), ("nvidia", 1)], [])


def test_where_every_gpu_is_lost_there_is_the_cpu() -> None:
    kinds, (reason,) = found(FakeNVML(FakeGPU(lost=True)))
    assert kinds == [("cpu", 0)]
    assert "fallen off the bus" in reason


def test_simulated_ones_are_added_and_differ() -> None:
    library = FakeNVML(FakeGPU())
    kinds, _ = found(library, TREADLE_SIMULATED_GPUS="2")
    assert kinds == [("nvidia", 0), ("simulated", 1), ("simulated", 2)]
    devices, _ = find_devices(environment={"TREADLE_SIMULATED_GPUS": "3"}, nvml_module=FakeNVML())
    uuids = {device.info.uuid for device in devices if device.info.kind is DeviceKind.SIMULATED}
    assert len(uuids) == 3


@pytest.mark.parametrize("text", ["two", "-1", "1.5", "99999", "²"])
def test_no_number_of_simulated_gpus_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"TREADLE_SIMULATED_GPUS=.*allowed: 0 to"):
        found(FakeNVML(), TREADLE_SIMULATED_GPUS=text)


def test_a_binding_that_is_something_else_is_no_crash() -> None:
    kinds, (reason,) = found(SimpleNamespace(NVMLError=pynvml.NVMLError))
    assert kinds == [("cpu", 0)]
    assert "does not know" in reason
