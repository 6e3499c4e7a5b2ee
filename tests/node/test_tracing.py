"""OpenTelemetry spans of a request."""

from __future__ import annotations

import json
import socket
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from .bodies import body, result
from .conftest import StartNode
from .nodes import DEADLINE_SECONDS, RunningNode, wait_until

CONFIGURATION = """
[node]
name = "loom"

[[model]]
name = "step"
factory = "steps:Step"
priority = "critical"
"""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def spans(node: RunningNode) -> list[dict[str, Any]]:
    """The spans on the node's standard output: JSON objects among other lines."""
    text, decoder, found = node.output.read_text(), json.JSONDecoder(), []
    start = text.find("\n{")
    while start >= 0:
        try:
            span, _ = decoder.raw_decode(text, start + 1)
        except json.JSONDecodeError:
            break  # still being written
        found.append(span)
        start = text.find("\n{", start + 1)
    return found


def trace(node: RunningNode, headers: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The three spans of one request, by their names."""
    answer = node.http.post("/v2/models/step/infer", json=body(1), headers=headers)
    assert result(answer) == [2]
    wait_until(lambda: len(spans(node)) >= 3, "three spans are written")
    assert len(spans(node)) == 3
    return {span["name"]: span for span in spans(node)}


def test_a_request_over_grpc_is_traced_as_over_http(start_node: StartNode) -> None:
    pytest.importorskip("opentelemetry.sdk")
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    node = start_node("[grpc]\nport = 0\n" + CONFIGURATION, environment=environment)
    tensor = triton.InferInput("x", [1, 1], "INT64")
    tensor.set_data_from_numpy(np.array([[1]]))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with triton.InferenceServerClient(node.grpc) as client:
        client.infer("step", [tensor], request_id="r-1", headers=headers)
    wait_until(lambda: len(spans(node)) >= 3, "three spans are written")
    whole = next(span for span in spans(node) if span["name"] == "infer step")
    assert whole["context"]["trace_id"] == f"0x{TRACE}"
    assert whole["parent_id"] == f"0x{PARENT}"
    assert whole["attributes"]["treadle.request_id"] == "r-1"


def collected_by(collector: socket.socket) -> dict[str, str]:
    """Variables that send spans to a listening socket."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.getsockname()[1]}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }


@pytest.fixture
def node(start_node: StartNode) -> RunningNode:
    pytest.importorskip("opentelemetry.sdk")
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    return start_node(CONFIGURATION, environment=environment)


def test_a_request_is_three_spans_below_its_callers(node: RunningNode) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "r-1"}
    found = trace(node, headers)
    whole = found["infer step"]
    assert whole["context"]["trace_id"] == f"0x{TRACE}"
    assert whole["parent_id"] == f"0x{PARENT}"
    assert whole["kind"] == "SpanKind.SERVER"
    assert whole["attributes"] == {
        "treadle.model": "step",
        "treadle.priority": "critical",
        "treadle.request_id": "r-1",
    }
    assert whole["resource"]["attributes"]["service.name"] == "loom"
    for name in ("queue", "compute"):
        assert found[name]["parent_id"] == whole["context"]["span_id"]
        assert found[name]["context"]["trace_id"] == f"0x{TRACE}"
    times = [
        whole["start_time"],
        found["queue"]["start_time"],
        found["queue"]["end_time"],
        found["compute"]["start_time"],
        found["compute"]["end_time"],
        whole["end_time"],
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("parent", [None, "nonsense", "00-0-0-00"])
def test_a_request_without_a_caller_of_its_own_starts_a_trace(
    node: RunningNode, parent: str | None
) -> None:
    found = trace(node, {} if parent is None else {"traceparent": parent})
    assert found["infer step"]["parent_id"] is None


def test_the_last_spans_are_written_before_the_node_ends(start_node: StartNode) -> None:
    pytest.importorskip("opentelemetry.sdk")
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "600000"}
    node = start_node(CONFIGURATION, environment=environment)
    assert result(node.http.post("/v2/models/step/infer", json=body(1))) == [2]
    node.process.terminate()
    assert node.wait_ended() == 0
    assert len(spans(node)) == 3


def test_spans_go_to_the_collector_that_is_named(start_node: StartNode) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with socket.create_server(("127.0.0.1", 0)) as collector:
        collector.settimeout(DEADLINE_SECONDS)
        node = start_node(CONFIGURATION, environment=collected_by(collector))
        assert result(node.http.post("/v2/models/step/infer", json=body(1))) == [2]
        connection, _ = collector.accept()
        with connection:
            assert connection.recv(20) == b"POST /v1/traces HTTP"
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            node.process.terminate()
            assert node.wait_ended() == 0


def test_nothing_is_sent_where_the_exporter_is_none(start_node: StartNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as collector:
        environment = collected_by(collector) | {"OTEL_TRACES_EXPORTER": "none"}
        node = start_node(CONFIGURATION, environment=environment)
        assert result(node.http.post("/v2/models/step/infer", json=body(1))) == [2]
        node.process.terminate()
        assert node.wait_ended() == 0
        collector.setblocking(False)
        with pytest.raises(BlockingIOError):
            collector.accept()


def test_nothing_is_traced_unless_asked_for(start_node: StartNode) -> None:
    node = start_node(CONFIGURATION)
    assert result(node.http.post("/v2/models/step/infer", json=body(1))) == [2]
    node.process.terminate()
    assert node.wait_ended() == 0
    assert spans(node) == []
