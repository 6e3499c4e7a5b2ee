"""What is measured: the critical workloads and the background ones, by name.

The numbers here are for the machine on which the measurements were planned (one H200); they
serve estimates of time and memory. Rates come from the service time that is measured there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

NONE = "none"
"""Stands in a cell's name for no workload."""
LOAD_SECONDS = 9.0
"""Importing PyTorch and creating a context; several processes do so at once."""
GIB = 1 << 30


_Workload = TypeVar("_Workload", "Critical", "Background")


class Scale(enum.StrEnum):
    """FULL is what is reported; TINY has the same code paths in milliseconds, on a CPU."""

    FULL = "full"
    TINY = "tiny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Critical:
    """A server of requests: what it runs and how much of its own capacity is asked of it."""

    name: str
    model: str
    """Workloads of one model share a process."""
    load: float
    """Offered load as a fraction of what it could serve alone."""
    service_seconds: float
    """About how long one request takes alone; for estimates only."""
    warm_seconds: float
    memory_bytes: int
    says: str

    @property
    def expected_rate(self) -> float:
        """Requests per second to plan with, before the service time is measured."""
        return self.load / self.service_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A trainer: everything that the GPU has left is welcome."""

    name: str
    variant: str
    """``eager``, ``compiled``, ``graphs`` or ``long``."""
    batch: int
    warm_seconds: float
    memory_bytes: int
    says: str


def _by_name(*workloads: _Workload) -> Mapping[str, _Workload]:
    return MappingProxyType({workload.name: workload for workload in workloads})


CRITICALS = _by_name(
    Critical(
        name="resnet20",
        model="resnet",
        load=0.20,
        service_seconds=1.0e-3,
        warm_seconds=4.0,
        memory_bytes=2 * GIB,
        says="ResNet-50, batch 4, one CUDA graph, 20% load",
    ),
    Critical(
        name="resnet45",
        model="resnet",
        load=0.45,
        service_seconds=1.0e-3,
        warm_seconds=4.0,
        memory_bytes=2 * GIB,
        says="ResNet-50, batch 4, one CUDA graph, 45% load",
    ),
    Critical(
        name="encoder30",
        model="encoder",
        load=0.30,
        service_seconds=1.75e-3,
        warm_seconds=4.0,
        memory_bytes=3 * GIB,
        says="24-layer encoder, batch 8, 128 tokens, one CUDA graph, 30% load",
    ),
    Critical(
        name="decoder30",
        model="decoder",
        load=0.30,
        service_seconds=9e-3,
        warm_seconds=4.0,
        memory_bytes=2 * GIB,
        says="6-layer decoder, 8 tokens a request, eager, 30% load",
    ),
    Critical(
        name="probe",
        model="probe",
        load=0.002,  # few enough that a request hardly ever waits for another
        service_seconds=10e-6,
        warm_seconds=1.0,
        memory_bytes=GIB,
        says="one tiny kernel a request, 0.2% load: from arrival to the first kernel",
    ),
)

BACKGROUNDS = _by_name(
    Background(
        name="trainer",
        variant="eager",
        batch=64,
        warm_seconds=4.0,
        memory_bytes=26 * GIB,
        says="12-layer transformer training, batch 64: bound by the GPU",
    ),
    Background(
        name="trainer-small",
        variant="eager",
        batch=8,
        warm_seconds=3.0,
        memory_bytes=8 * GIB,
        says="the same, batch 8: bound by launches",
    ),
    Background(
        name="trainer-compiled",
        variant="compiled",
        batch=64,
        warm_seconds=40.0,
        memory_bytes=26 * GIB,
        says="the same, batch 64, its layers through torch.compile",
    ),
    Background(
        name="trainer-graphs",
        variant="graphs",
        batch=8,
        warm_seconds=4.0,
        memory_bytes=12 * GIB,
        says="the same, batch 8, each step one CUDA graph",
    ),
    Background(
        name="long-kernels",
        variant="long",
        batch=1,
        warm_seconds=1.0,
        memory_bytes=GIB,
        says="kernels of 10 ms, one after the other",
    ),
)
