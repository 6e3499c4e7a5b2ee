"""What the node counts, as Prometheus reads it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode, wait_until

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
priority = "critical"
queue_limit = 1
max_batch = 4

[[model]]
name = "faulty"
factory = "faulty:Faulty"
parameters = { fault = "raises" }
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


def value(node: RunningNode, name: str, **labels: str) -> float:
    """The value of one sample; 0 if it has never been set."""
    for family in text_string_to_metric_families(node.http.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return 0.0


def outcomes(
    node: RunningNode, outcome: str, model: str = "step", priority: str = "critical"
) -> float:
    labels = {"model": model, "priority": priority, "outcome": outcome}
    return value(node, "treadle_requests_total", **labels)


def test_the_metrics_can_be_parsed_and_are_all_there(node: RunningNode) -> None:
    assert result(infer(node, "step", 1)) == [2]
    answer = node.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert {
        "treadle_request_seconds",
        "treadle_request_queue_seconds",
        "treadle_request_compute_seconds",
        "treadle_requests",
        "treadle_queue_depth",
        "treadle_batch_rows",
        "treadle_device_held_seconds",
        "treadle_device_busy_share",
        "process_resident_memory_bytes",
    } <= families.keys()
    for name, family in families.items():
        assert family.documentation, name


def test_the_metrics_come_as_openmetrics_when_asked(node: RunningNode) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = node.http.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families: Any = openmetrics.text_string_to_metric_families  # it has no types
    assert "treadle_request_seconds" in {family.name for family in families(answer.text)}


def test_an_answered_request_is_counted_with_its_times(node: RunningNode) -> None:
    labels = {"model": "step", "priority": "critical"}
    histograms = ("request_seconds", "request_queue_seconds", "request_compute_seconds")
    names = [f"treadle_{name}_count" for name in histograms]
    before = [value(node, name, **labels) for name in names]
    answered, busy = (
        outcomes(node, "ok"),
        value(node, "treadle_device_held_seconds_total", model="step"),
    )
    assert result(infer(node, "step", 1, 2, 3)) == [2, 3, 4]
    assert [value(node, name, **labels) for name in names] == [count + 1 for count in before]
    assert outcomes(node, "ok") == answered + 1
    assert value(node, "treadle_device_held_seconds_total", model="step") > busy
    assert value(node, "treadle_batch_rows_bucket", model="step", le="4.0") >= 1


def test_a_lowered_request_is_counted_in_its_own_class(node: RunningNode) -> None:
    before = outcomes(node, "ok", priority="background")
    assert result(infer(node, "step", 1, priority=3)) == [2]
    assert outcomes(node, "ok", priority="background") == before + 1


def test_waiting_requests_are_the_queues_depth(node: RunningNode, pool: ThreadPoolExecutor) -> None:
    def depth() -> float:
        return value(node, "treadle_queue_depth", model="step", priority="critical")

    node.forget_what_ran()
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        assert depth() == 0
        waiting = pool.submit(infer, node, "step", 2)
        wait_until(lambda: depth() == 1, "one request waits")
        refused = outcomes(node, "refused")
        error(infer(node, "step", 3), 503)
        assert outcomes(node, "refused") == refused + 1
    assert result(running.result()) + result(waiting.result()) == [2, 3]
    assert depth() == 0


def test_every_way_to_end_is_counted(node: RunningNode) -> None:
    invalid, expired = outcomes(node, "invalid"), outcomes(node, "expired")
    failed = outcomes(node, "failed", "faulty", "normal")
    assert result(infer(node, "step", 1)) == [2]
    error(infer(node, "step", *range(9)), 400)
    error(infer(node, "step", 1, timeout=1), 503)
    error(infer(node, "faulty", 13), 500)
    assert outcomes(node, "invalid") == invalid + 1
    assert outcomes(node, "expired") == expired + 1
    assert outcomes(node, "failed", "faulty", "normal") == failed + 1


def test_unknown_models_make_no_new_series(node: RunningNode) -> None:
    error(infer(node, "nobody-at-all", 1), 404)
    assert "nobody-at-all" not in node.http.get("/metrics").text
