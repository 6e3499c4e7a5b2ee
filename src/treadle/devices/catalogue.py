"""The sources of a GPU, by what they cost: one list, so a simulated GPU looks like a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from treadle.devices.device import Reading


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a source reads, how often that changes and how long a read takes."""

    name: str
    metrics: tuple[str, ...]
    refresh_seconds: float
    cost_seconds: float


def _table() -> Mapping[str, SourceSpec]:
    """Refresh and cost are of an H200 with driver 580, where they are known.

    The cost of ``nvml.links`` is that of six other fields, and ``nvml.energy`` changes every
    100 ms; a counter loses nothing by being read more rarely, and this one takes 3 ms.
    """
    rows = (
        ("nvml.utilization", "gpu_utilization memory_utilization", 0.2, 4e-6),
        ("nvml.power-samples", "power", 0.02, 300e-6),
        (
            "nvml.gpm",
            "sm_activity sm_occupancy tensor_activity fp16_activity fp32_activity fp64_activity "
            "dram_activity",
            0.1,
            1.4e-3,
        ),
        (
            "nvml.clocks",
            "sm_clock memory_clock performance_state throttled_power throttled_thermal "
            "throttled_other",
            0.1,
            6e-6,
        ),
        ("nvml.memory", "memory_used memory_free memory_reserved bar1_used", 0.1, 20e-6),
        ("nvml.temperature", "temperature memory_temperature", 0.1, 9e-6),
        (
            "nvml.links",
            "pcie_sent pcie_received pcie_replays nvlink_sent nvlink_received",
            1.0,
            40e-6,
        ),
        ("nvml.processes", "processes", 1.0, 7e-6),
        (
            "nvml.board",
            "power_limit fan_speed ecc_corrected ecc_uncorrected encoder_utilization "
            "decoder_utilization",
            1.0,
            15e-6,
        ),
        ("nvml.energy", "energy", 1.0, 3e-3),
    )
    return {
        name: SourceSpec(name, tuple(metrics.split()), *times) for name, metrics, *times in rows
    }


GPU_SOURCES: Mapping[str, SourceSpec] = MappingProxyType(_table())


class FunctionSource:
    """A source whose readings a function makes."""

    def __init__(self, spec: SourceSpec, read: Callable[[], Sequence[Reading]]) -> None:
        self._spec = spec
        self._read = read

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def metrics(self) -> tuple[str, ...]:
        return self._spec.metrics

    @property
    def refresh_seconds(self) -> float:
        return self._spec.refresh_seconds

    @property
    def cost_seconds(self) -> float:
        return self._spec.cost_seconds

    def read(self) -> Sequence[Reading]:
        return self._read()
