"""Every figure that is read from a device: what it means, and what it does not."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class MetricKind(enum.StrEnum):
    """How a figure behaves over time, in Prometheus' words."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure."""

    name: str
    unit: str
    """``ratio`` (0 to 1), ``bytes``, ``watts``, ``joules``, ``celsius``, ``hertz`` or ``1``."""
    kind: MetricKind
    meaning: str
    caution: str
    """What it is often taken for and is not; empty where nobody errs."""


def _table() -> Mapping[str, Metric]:
    gauge, counter = MetricKind.GAUGE, MetricKind.COUNTER
    rows = (
        ("sm_activity", "ratio", gauge, "SMs with at least one warp, mean over SMs and window",
         "not how much of each SM is used"),
        ("sm_occupancy", "ratio", gauge, "warps resident, of those that would fit",
         "high occupancy is not high speed"),
        ("tensor_activity", "ratio", gauge, "cycles in which the tensor cores issue", ""),
        ("fp16_activity", "ratio", gauge, "cycles in which the FP16 pipe issues", ""),
        ("fp32_activity", "ratio", gauge, "cycles in which the FP32 pipe issues", ""),
        ("fp64_activity", "ratio", gauge, "cycles in which the FP64 pipe issues", ""),
        ("dram_activity", "ratio", gauge, "memory bandwidth used, of what there is", ""),
        ("gpu_utilization", "ratio", gauge, "time in which at least one kernel ran",
         "not how busy the GPU is: one thread that spins makes it 1"),
        ("memory_utilization", "ratio", gauge, "time in which memory was read or written",
         "not how full the memory is, nor its bandwidth"),
        ("encoder_utilization", "ratio", gauge, "time in which the video encoder ran", ""),
        ("decoder_utilization", "ratio", gauge, "time in which the video decoder ran", ""),
        ("memory_used", "bytes", gauge, "memory that is allocated, the driver's own left out", ""),
        ("memory_free", "bytes", gauge, "memory that can still be allocated", ""),
        ("memory_reserved", "bytes", gauge, "memory that the driver keeps for itself", ""),
        ("bar1_used", "bytes", gauge, "of the window through which the host sees the memory", ""),
        ("power", "watts", gauge, "power drawn, as the board measures it", ""),
        ("power_limit", "watts", gauge, "what the board is held to", ""),
        ("energy", "joules", counter, "energy drawn since the driver was loaded", ""),
        ("temperature", "celsius", gauge, "of the GPU", "not of its hottest spot"),
        ("memory_temperature", "celsius", gauge, "of the memory", ""),
        ("fan_speed", "ratio", gauge, "of the fans, of their intended maximum", ""),
        ("sm_clock", "hertz", gauge, "clock of the SMs", ""),
        ("memory_clock", "hertz", gauge, "clock of the memory", ""),
        ("performance_state", "1", gauge, "P-state: 0 is the fastest", ""),
        ("throttled_power", "1", gauge, "1 while clocks are held down to keep within power", ""),
        ("throttled_thermal", "1", gauge, "1 while clocks are held down by heat", ""),
        ("throttled_other", "1", gauge, "1 while clocks are held down for another reason",
         "an idle GPU's low clock is not counted"),
        ("pcie_sent", "bytes", counter, "sent to the host over PCIe", ""),
        ("pcie_received", "bytes", counter, "received from the host over PCIe", ""),
        ("pcie_replays", "1", counter, "packets that had to be sent again", ""),
        ("nvlink_sent", "bytes", counter, "sent over all NVLinks", ""),
        ("nvlink_received", "bytes", counter, "received over all NVLinks", ""),
        ("ecc_corrected", "1", counter, "memory errors corrected since the driver was loaded", ""),
        ("ecc_uncorrected", "1", counter, "memory errors that could not be corrected", ""),
        ("processes", "1", gauge, "processes with a context on the device", ""),
        ("cpu_utilization", "ratio", gauge, "of the cores that this process may use", ""),
        ("gate_busy", "ratio", gauge, "time in which critical or normal work was marked", ""),
        ("gate_launches", "1", counter, "launches by all members of the turnstile", ""),
        ("gate_work", "seconds", counter, "GPU time of those launches, as predicted",
         "a prediction, corrected by events"),
        ("gate_waited", "seconds", counter, "time that members have waited at the gate", ""),
        ("gate_memory", "bytes", gauge, "memory that gated members hold", ""),
        ("gate_members", "1", gauge, "programs at the turnstile", ""),
    )  # fmt: skip
    return {row[0]: Metric(*row) for row in rows}


METRICS: Mapping[str, Metric] = MappingProxyType(_table())
