"""Readings as Prometheus takes them: dcgm-exporter's names where the meaning is the same.

What has no value has no sample: never a 0, -1 or NaN in its place.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from treadle.devices.device import DeviceKind
from treadle.devices.metrics import METRICS, Metric, MetricKind
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot

LABELS = ("gpu", "UUID", "device", "modelName", "Hostname")
_PERCENT, _PER_MIB, _PER_MHZ, _MILLI = 100.0, 1 / 2**20, 1e-6, 1000.0


class _Known(NamedTuple):
    """A metric under the name that dcgm-exporter gives it."""

    name: str
    factor: float = 1.0
    unit: str = ""


DCGM: Mapping[str, _Known] = MappingProxyType(
    {
        "gpu_utilization": _Known("DCGM_FI_DEV_GPU_UTIL", _PERCENT, "percent"),
        "memory_utilization": _Known("DCGM_FI_DEV_MEM_COPY_UTIL", _PERCENT, "percent"),
        "encoder_utilization": _Known("DCGM_FI_DEV_ENC_UTIL", _PERCENT, "percent"),
        "decoder_utilization": _Known("DCGM_FI_DEV_DEC_UTIL", _PERCENT, "percent"),
        "memory_used": _Known("DCGM_FI_DEV_FB_USED", _PER_MIB, "MiB"),
        "memory_free": _Known("DCGM_FI_DEV_FB_FREE", _PER_MIB, "MiB"),
        "memory_reserved": _Known("DCGM_FI_DEV_FB_RESERVED", _PER_MIB, "MiB"),
        "power": _Known("DCGM_FI_DEV_POWER_USAGE", unit="W"),
        "energy": _Known("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI, "mJ"),
        "temperature": _Known("DCGM_FI_DEV_GPU_TEMP", unit="C"),
        "memory_temperature": _Known("DCGM_FI_DEV_MEMORY_TEMP", unit="C"),
        "sm_clock": _Known("DCGM_FI_DEV_SM_CLOCK", _PER_MHZ, "MHz"),
        "memory_clock": _Known("DCGM_FI_DEV_MEM_CLOCK", _PER_MHZ, "MHz"),
        "pcie_replays": _Known("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
        "ecc_corrected": _Known("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
        "ecc_uncorrected": _Known("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        "sm_activity": _Known("DCGM_FI_PROF_SM_ACTIVE", unit="ratio"),
        "sm_occupancy": _Known("DCGM_FI_PROF_SM_OCCUPANCY", unit="ratio"),
        "tensor_activity": _Known("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", unit="ratio"),
        "fp16_activity": _Known("DCGM_FI_PROF_PIPE_FP16_ACTIVE", unit="ratio"),
        "fp32_activity": _Known("DCGM_FI_PROF_PIPE_FP32_ACTIVE", unit="ratio"),
        "fp64_activity": _Known("DCGM_FI_PROF_PIPE_FP64_ACTIVE", unit="ratio"),
        "dram_activity": _Known("DCGM_FI_PROF_DRAM_ACTIVE", unit="ratio"),
    }
)


def own_name(metric: Metric) -> str:
    """The name of a metric that dcgm-exporter does not have, without a counter's ``_total``."""
    return f"treadle_device_{metric.name}{'' if metric.unit == '1' else '_' + metric.unit}"


def exported_name(metric: Metric) -> str:
    """The name of a GPU's samples of a metric."""
    if metric.name in DCGM:
        return DCGM[metric.name].name
    return own_name(metric) + ("_total" if metric.kind is MetricKind.COUNTER else "")


class DeviceMetrics(Collector):
    """A collector to register. It takes what the monitor knows, and asks no device."""

    def __init__(self, snapshot: Callable[[], MonitorSnapshot], host: str | None = None) -> None:
        self._snapshot = snapshot
        self._host = host or socket.gethostname()

    def describe(self) -> Iterable[Family]:
        return ()  # so that registering it collects nothing

    def collect(self) -> Iterable[Family]:
        snapshot = self._snapshot()
        yield GaugeMetricFamily(
            "treadle_monitor_up",
            "1 while devices are being read",
            value=0.0 if snapshot.trouble else 1.0,
        )
        yield CounterMetricFamily(
            "treadle_monitor_restarts",
            "Times that the process that reads devices was started again",
            value=float(snapshot.restarts),
        )
        for metric in METRICS.values():
            for family in self._families(metric, snapshot.devices):
                if family.samples:
                    yield family

    def _families(self, metric: Metric, devices: Iterable[DeviceView]) -> tuple[Family, ...]:
        kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
        ours = kind(own_name(metric), metric.meaning, labels=LABELS)
        known = DCGM.get(metric.name)
        unit = f" ({known.unit})" if known and known.unit else ""
        # Counters too: this library would end their names in _total, which dcgm-exporter does not.
        plain = "gauge" if metric.kind is MetricKind.GAUGE else "unknown"
        theirs = Family(known.name if known else "none", metric.meaning + unit, plain)
        for view in devices:
            value = view.value(metric.name)
            if value is None:
                continue
            labels = self._labels(view)
            if known and view.info.kind is not DeviceKind.CPU:
                theirs.add_sample(
                    known.name, dict(zip(LABELS, labels, strict=True)), value * known.factor
                )
            else:
                ours.add_metric(labels, value)
        return ours, theirs

    def _labels(self, view: DeviceView) -> tuple[str, ...]:
        info = view.info
        index = str(info.index)
        return index, info.uuid, f"{info.kind}{index}", info.name, self._host
