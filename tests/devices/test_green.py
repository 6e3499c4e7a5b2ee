"""SMs divided among streams, against a stand-in for the driver's bindings."""

from __future__ import annotations

import enum
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.devices.device import DeviceError
from treadle.devices.green import GRANULE, GreenContexts


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_SUPPORTED = 801


def resource(sms: int, name: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(sm=SimpleNamespace(smCount=sms), name=name)


class Driver:
    """``cuda.bindings.driver``, as far as it is used: functions return a status, and what else."""

    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1)
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self, sms: int = 132, fails: str = "") -> None:
        self.sms, self.fails = sms, fails
        self.streams: list[tuple[list[int], int]] = []
        """Groups and priority of each."""

    def _answer(self, function: str, *found: Any) -> tuple[Any, ...]:
        if function == self.fails:
            return (Status.CUDA_ERROR_NOT_SUPPORTED, *found)
        return (Status.CUDA_SUCCESS, *found)

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:  # noqa: N802
        return self._answer("cuDeviceGet", f"device {ordinal}")

    def cuDeviceGetDevResource(self, device: str, kind: int) -> tuple[Any, ...]:  # noqa: N802
        assert (device, kind) == ("device 0", 1)
        return self._answer("cuDeviceGetDevResource", resource(self.sms))

    def cuDevSmResourceSplitByCount(  # noqa: N802
        self, groups: int, whole: Any, flags: int, least: int
    ) -> tuple[Any, ...]:
        assert (whole.sm.smCount, flags) == (self.sms, 0)
        there = min(groups, self.sms // least)
        made = [resource(least if n < there else 0, n) for n in range(groups)]
        rest = resource(self.sms - there * least)
        return self._answer("cuDevSmResourceSplitByCount", made, there, rest)

    def cuDevResourceGenerateDesc(self, chosen: list[Any], count: int) -> tuple[Any, ...]:  # noqa: N802
        assert len(chosen) == count
        return self._answer("cuDevResourceGenerateDesc", [one.name for one in chosen])

    def cuGreenCtxCreate(self, names: list[int], device: str, flags: int) -> tuple[Any, ...]:  # noqa: N802
        assert (device, flags) == ("device 0", 1)
        return self._answer("cuGreenCtxCreate", names)

    def cuGreenCtxStreamCreate(  # noqa: N802
        self, context: list[int], flags: int, priority: int
    ) -> tuple[Any, ...]:
        assert flags == 1
        self.streams.append((context, priority))
        return self._answer("cuGreenCtxStreamCreate", 0x1000 + len(self.streams))


@pytest.mark.parametrize(
    ("share", "sms"),
    [(0.01, 8), (0.0625, 8), (0.25, 32), (0.5, 64), (0.75, 96), (0.99, 128), (1.0, 128)],
)
def test_a_stream_has_at_most_its_share_in_whole_groups(share: float, sms: int) -> None:
    driver = Driver()
    contexts = GreenContexts(0, driver)
    assert contexts.sms == 132
    assert contexts.stream(share, -3) == (0x1001, sms)
    assert driver.streams == [(list(range(sms // GRANULE)), -3)]


def test_the_shares_of_several_streams_lie_side_by_side_while_there_is_room() -> None:
    driver = Driver(sms=64)
    contexts = GreenContexts(0, driver)
    for share in (0.5, 0.25, 0.25, 0.25):
        contexts.stream(share, 0)
    assert [groups for groups, _ in driver.streams] == [[0, 1, 2, 3], [4, 5], [6, 7], [0, 1]]


@pytest.mark.parametrize(
    "function",
    [
        "cuDeviceGet",
        "cuDeviceGetDevResource",
        "cuDevSmResourceSplitByCount",
        "cuDevResourceGenerateDesc",
        "cuGreenCtxCreate",
        "cuGreenCtxStreamCreate",
    ],
)
def test_what_the_driver_refuses_is_a_reason(function: str) -> None:
    with pytest.raises(DeviceError, match=f"{function}: CUDA_ERROR_NOT_SUPPORTED"):
        GreenContexts(0, Driver(fails=function)).stream(0.5, 0)


def test_bindings_that_are_too_old_are_a_reason() -> None:
    with pytest.raises(DeviceError, match="no cuDeviceGetDevResource"):
        GreenContexts(
            0,
            SimpleNamespace(
                cuDeviceGet=lambda n: (0, n), CUdevResourceType=Driver.CUdevResourceType
            ),
        )


def test_a_gpu_with_fewer_sms_than_a_group_is_a_reason() -> None:
    with pytest.raises(DeviceError, match="no groups"):
        GreenContexts(0, Driver(sms=4))


def test_missing_bindings_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match="cuda-bindings"):
        GreenContexts(0)
