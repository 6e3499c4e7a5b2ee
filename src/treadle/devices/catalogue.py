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
    """Refresh and cost are of one H200 with driver 580, in one host.

    Costs differ much by host: in another one, utilisation took 4 us, links 40 us, GPM 1.4 ms. They
    are where the monitor begins; it measures what reads take and paces them by that. Power was
    timed with two calls of which one is left, and the memory together with BAR1, which is the
    board's now. ``nvml.energy`` changes every 100 ms; a counter loses nothing by being read more
    rarely.
    """
    rows = (
        ("nvml.utilization", "gpu_utilization memory_utilization", 0.2, 108e-6),
        ("nvml.power-samples", "power", 0.02, 747e-6),
        (
            "nvml.gpm",
            "sm_activity sm_occupancy tensor_activity fp16_activity fp32_activity fp64_activity "
            "dram_activity",
            0.1,
            278e-6,
        ),
        (
            "nvml.clocks",
            "sm_clock memory_clock performance_state throttled_power throttled_thermal "
            "throttled_other",
            0.1,
            121e-6,
        ),
        ("nvml.memory", "memory_used memory_free memory_reserved", 0.1, 576e-6),
        ("nvml.temperature", "temperature memory_temperature", 0.1, 111e-6),
        (
            "nvml.links",
            "pcie_sent pcie_received pcie_replays nvlink_sent nvlink_received",
            1.0,
            1220e-6,
        ),
        ("nvml.processes", "processes", 1.0, 149e-6),
        (
            "nvml.board",
            "power_limit fan_speed ecc_corrected ecc_uncorrected encoder_utilization "
            "decoder_utilization bar1_used",
            1.0,
            185e-6,
        ),
        ("nvml.energy", "energy", 1.0, 4593e-6),
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
