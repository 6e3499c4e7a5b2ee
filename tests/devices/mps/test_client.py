"""What a client has in its environment, and what may be asked of a GPU in parallel mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.devices.mps.standin import GPU

from treadle.devices.mps import (
    PARALLEL_MECHANISMS,
    ClientLimits,
    MpsTimeouts,
    client_environment,
)
from treadle.types import Priority

PIPE, LOG = Path("/run/m/pipe"), Path("/run/m/log")


@pytest.mark.parametrize(
    ("priority", "number"),
    [(Priority.CRITICAL, "0"), (Priority.NORMAL, "0"), (Priority.BACKGROUND, "1")],
)
def test_a_client_without_limits_has_its_priority_only(priority: Priority, number: str) -> None:
    assert client_environment(PIPE, LOG, ClientLimits(priority=priority)) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/m/pipe",
        "CUDA_MPS_LOG_DIRECTORY": "/run/m/log",
        "CUDA_MPS_CLIENT_PRIORITY": number,
    }


@pytest.mark.parametrize(
    ("fraction", "percent"), [(0.01, "1"), (0.29, "29"), (0.4, "40"), (0.999, "100"), (1, "100")]
)
def test_a_fraction_of_the_sms_is_whole_percents(fraction: float, percent: str) -> None:
    limits = ClientLimits(priority=Priority.NORMAL, sm_fraction=fraction)
    found = client_environment(PIPE, LOG, limits)
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == percent


@pytest.mark.parametrize(
    ("memory", "gpus", "limit"),
    [
        (10 << 30, (), "0=10240M"),
        (10 << 30, (GPU,), "0=10240M"),
        ((3 << 20) - 1, (GPU, GPU), "0=2M,1=2M"),
    ],
)
def test_memory_is_whole_mebibytes_for_each_gpu_as_the_client_counts_them(
    memory: int, gpus: tuple[str, ...], limit: str
) -> None:
    limits = ClientLimits(priority=Priority.NORMAL, memory_bytes=memory)
    found = client_environment(PIPE, LOG, limits, gpus)
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == limit
    assert found.get("CUDA_VISIBLE_DEVICES", "") == ",".join(gpus)


@pytest.mark.parametrize("fraction", [0, -0.5, 0.009, 1.01, 40, float("nan"), float("inf")])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"sm_fraction is .*; allowed: 0.01 to 1"):
        ClientLimits(priority=Priority.NORMAL, sm_fraction=fraction)


@pytest.mark.parametrize("memory", [0, -1, (1 << 20) - 1])
def test_memory_below_a_mebibyte_is_refused(memory: int) -> None:
    with pytest.raises(ValueError, match=r"memory_bytes is .*; allowed: 1048576 \(1 MiB\)"):
        ClientLimits(priority=Priority.NORMAL, memory_bytes=memory)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"command is .* s; allowed: above 0"):
        MpsTimeouts(command=seconds)


def test_what_needs_a_checkpoint_is_not_to_be_had_in_parallel_mode_and_says_why() -> None:
    facts = {one.name: one for one in PARALLEL_MECHANISMS}
    assert len(facts) == len(PARALLEL_MECHANISMS)
    for name in ("pause", "evict", "move"):
        assert not facts[name].available
        assert "801" in facts[name].reason
    for name in ("client priority", "SM limit", "memory limit", "launch gate", "terminate"):
        assert facts[name].available
        assert facts[name].reason
