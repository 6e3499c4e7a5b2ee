"""The node monitors devices, and lives without."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .conftest import StartNode
from .nodes import RunningNode, wait_until

ROOT = Path(__file__).parents[2]
FAKES = {
    "TREADLE_DEVICES": "tests.monitor.fakes:two",
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
}


def samples(node: RunningNode) -> dict[str, float]:
    text = node.http.get("/metrics").text
    return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}


def test_devices_are_in_the_metrics_and_the_status(start_node: StartNode) -> None:
    node = start_node("", environment=FAKES)
    wait_until(lambda: "DCGM_FI_DEV_POWER_USAGE" in samples(node), "readings")
    assert samples(node)["treadle_monitor_up"] == 1.0
    status = node.local.get("/treadle/v1/status").json()["monitor"]
    assert status["trouble"] == ""
    assert [device["uuid"] for device in status["devices"]] == ["FAKE-0", "FAKE-1"]
    assert status["reasons"] == ["nvidia: there is no driver"]
    shown = node.home.treadle("status").stdout
    assert "monitor  reads 2 devices: Fake 8GB, Fake 8GB" in shown


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("none", 'devices are not monitored: node.devices is "none"'),
        ("no_such_module:find", "No module named 'no_such_module'"),
        ("tests.monitor.fakes:none", "nothing is here"),
    ],
)
def test_a_node_without_a_monitor_says_why_and_serves(
    start_node: StartNode, devices: str, reason: str
) -> None:
    node = start_node("", environment=FAKES | {"TREADLE_DEVICES": devices})

    def trouble() -> str:
        return str(node.local.get("/treadle/v1/status").json()["monitor"]["trouble"])

    wait_until(lambda: reason in trouble(), "the reason")
    assert node.http.get("/v2/health/ready").status_code == 200
    assert samples(node)["treadle_monitor_up"] == 0.0
