"""Readings as Prometheus sees them, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from treadle.devices.device import DeviceInfo, DeviceKind, Reading
from treadle.devices.metrics import METRICS, MetricKind
from treadle.monitor import DeviceView, MonitorSnapshot
from treadle.monitor.exporter import DCGM, LABELS, DeviceMetrics, exported_name

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "treadle.json"


def view(kind: DeviceKind = DeviceKind.NVIDIA, /, **values: float | None) -> DeviceView:
    readings = {
        name: Reading(name, value, 1.0, 0.1, "" if value is not None else "no sensor")
        for name, value in values.items()
    }
    info = DeviceInfo(
        uuid="GPU-1", index=0, name="NVIDIA H200", kind=kind, cores=132, memory_bytes=1 << 37
    )
    return DeviceView(info=info, readings=readings, sources=dict.fromkeys(values, "nvml"))


def scrape(*views: DeviceView, trouble: str = "") -> dict[str, float]:
    """Samples by name, from the text that Prometheus would get."""
    registry = CollectorRegistry()
    snapshot = MonitorSnapshot(at=1.0, devices=views, trouble=trouble, restarts=3)
    registry.register(DeviceMetrics(lambda: snapshot, "host"))
    encode: Any = openmetrics.generate_latest  # it has no types
    encode(registry)  # the other format must be possible, too
    text = generate_latest(registry).decode()
    return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}


@pytest.mark.parametrize(
    ("metric", "value", "name", "exported"),
    [
        ("gpu_utilization", 0.5, "DCGM_FI_DEV_GPU_UTIL", 50.0),
        ("memory_used", 3 * 2.0**30, "DCGM_FI_DEV_FB_USED", 3072.0),
        ("power", 300.5, "DCGM_FI_DEV_POWER_USAGE", 300.5),
        ("temperature", 60.0, "DCGM_FI_DEV_GPU_TEMP", 60.0),
        ("sm_activity", 0.25, "DCGM_FI_PROF_SM_ACTIVE", 0.25),
        ("tensor_activity", 0.25, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.25),
        ("energy", 12.5, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 12_500.0),
        ("sm_clock", 1.98e9, "DCGM_FI_DEV_SM_CLOCK", 1980.0),
        ("gate_busy", 0.5, "treadle_device_gate_busy_ratio", 0.5),
        ("gate_launches", 7.0, "treadle_device_gate_launches_total", 7.0),
        ("gate_work", 1.5, "treadle_device_gate_work_seconds_total", 1.5),
        ("nvlink_sent", 9.0, "treadle_device_nvlink_sent_bytes_total", 9.0),
        ("throttled_power", 1.0, "treadle_device_throttled_power", 1.0),
    ],
)
def test_a_figure_has_its_name_and_unit(
    metric: str, value: float, name: str, exported: float
) -> None:
    assert scrape(view(**{metric: value}))[name] == pytest.approx(exported)
    assert exported_name(METRICS[metric]) == name


def test_every_metric_can_be_exported_and_names_are_unique() -> None:
    names = [exported_name(metric) for metric in METRICS.values()]
    assert len(set(names)) == len(METRICS)
    samples = scrape(view(**dict.fromkeys(METRICS, 1.0)))
    assert set(names) <= samples.keys()
    assert DCGM.keys() <= METRICS.keys()


def test_what_is_missing_is_absent() -> None:
    samples = scrape(view(power=None, temperature=0.0))
    assert "DCGM_FI_DEV_POWER_USAGE" not in samples
    assert samples["DCGM_FI_DEV_GPU_TEMP"] == 0.0


def test_trouble_leaves_the_monitors_own_samples_only() -> None:
    assert scrape(trouble="nvml hangs") == {
        "treadle_monitor_up": 0.0,
        "treadle_monitor_restarts_total": 3.0,
    }


def test_labels_are_those_of_dcgm_exporter() -> None:
    registry = CollectorRegistry()
    snapshot = MonitorSnapshot(at=1.0, devices=(view(power=1.0, gate_busy=1.0),))
    registry.register(DeviceMetrics(lambda: snapshot, "host"))
    expected = dict(zip(LABELS, ("0", "GPU-1", "nvidia0", "NVIDIA H200", "host"), strict=True))
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if not family.name.startswith("treadle_monitor"):
                assert sample.labels == expected


def test_a_cpu_is_not_taken_for_a_gpu() -> None:
    samples = scrape(view(DeviceKind.CPU, memory_used=5.0, cpu_utilization=0.5))
    assert samples["treadle_device_memory_used_bytes"] == 5.0
    assert not any(name.startswith("DCGM") for name in samples)


def expressions(panel: Any) -> list[str]:
    inner = [e for p in panel.get("panels", ()) for e in expressions(p)]
    return [target["expr"] for target in panel.get("targets", ())] + inner


def test_the_dashboard_shows_only_what_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    known = {exported_name(metric) for metric in METRICS.values()}
    known |= {"treadle_monitor_up", "treadle_monitor_restarts_total", "treadle_queue_depth"}
    shown = [e for panel in dashboard["panels"] for e in expressions(panel)]
    names = {n for e in shown for n in re.findall(r"\b(?:DCGM|treadle)_\w+", e)}
    assert names
    assert names <= known


def test_the_dashboard_is_of_a_schema_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 39
    assert dashboard["uid"]
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    for panel in dashboard["panels"]:
        assert {"x", "y", "w", "h"} == panel["gridPos"].keys()
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["datasource"]["uid"] == "${datasource}"
    for metric in METRICS.values():  # a counter is shown as a rate
        if metric.kind is MetricKind.COUNTER:
            for panel in dashboard["panels"]:
                for expression in expressions(panel):
                    if exported_name(metric) in expression:
                        assert re.search(r"rate\(|increase\(", expression), expression
