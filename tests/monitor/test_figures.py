"""The page about every figure is made from the table of metrics."""

from __future__ import annotations

from pathlib import Path

from treadle.devices.metrics import METRICS
from treadle.monitor import gate
from treadle.monitor.exporter import exported_name

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
MARK = "<!-- python tests/monitor/test_figures.py writes what follows -->\n"

_MOMENT, _SINCE = "the moment", "since the driver was loaded"
SOURCES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            *("sm_activity", "sm_occupancy", "tensor_activity", "dram_activity"),
            *("fp16_activity", "fp32_activity", "fp64_activity"),
        ),
        ("GPM", "since the last read, 100 ms or more"),
    ),
    "gpu_utilization": ("NVML", "200 ms"),
    "memory_utilization": ("NVML", "200 ms"),
    "encoder_utilization": ("NVML", "of the driver"),
    "decoder_utilization": ("NVML", "of the driver"),
    "power": ("NVML samples", "20 ms"),
    "energy": ("NVML", _SINCE),
    "power_limit": ("NVML", _MOMENT),
    **dict.fromkeys(
        (
            *("memory_used", "memory_free", "memory_reserved", "bar1_used"),
            *("temperature", "memory_temperature", "fan_speed", "sm_clock", "memory_clock"),
            *("performance_state", "throttled_power", "throttled_thermal", "throttled_other"),
            "processes",
        ),
        ("NVML", _MOMENT),
    ),
    **dict.fromkeys(
        (
            *("pcie_sent", "pcie_received", "pcie_replays", "nvlink_sent", "nvlink_received"),
            *("ecc_corrected", "ecc_uncorrected"),
        ),
        ("NVML", _SINCE),
    ),
    "cpu_utilization": ("the system", "since the last read"),
    "gate_busy": ("turnstile", "10 ms"),
    "gate_memory": ("turnstile", _MOMENT),
    "gate_members": ("turnstile", _MOMENT),
    "gate_launches": ("turnstile", "since the monitor's helper began"),
    "gate_work": ("turnstile", "since the monitor's helper began"),
    "gate_waited": ("turnstile", "since the monitor's helper began"),
}


def table() -> str:
    rows = [
        "| figure | in Prometheus | unit | source | window | what it is | what it is not |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for metric in METRICS.values():
        source, window = SOURCES[metric.name]
        rows.append(
            f"| `{metric.name}` | `{exported_name(metric)}` | {metric.unit} | {source} | {window} "
            f"| {metric.meaning} | {metric.caution} |"
        )
    return "\n".join(rows) + "\n"


def test_the_page_is_made_from_the_metrics() -> None:
    """To accept a change: ``python tests/monitor/test_figures.py``."""
    assert PAGE.read_text().partition(MARK)[2] == table()


def test_every_figure_has_a_source_and_nothing_else_has() -> None:
    assert SOURCES.keys() == METRICS.keys()
    assert {m for m, (source, _) in SOURCES.items() if source == "turnstile"} == set(gate.METRICS)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + table())
