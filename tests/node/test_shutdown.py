"""The end of a node: what was accepted is answered, nothing new is taken, nothing is left."""

from __future__ import annotations

import contextlib
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import orjson
import pytest

from .bodies import body, error, infer, result, tensor
from .conftest import StartNode
from .nodes import RunningNode, wait_until
from .wire import head, wire

CONFIGURATION = """
[node]
drain_seconds = 25

[[model]]
name = "step"
factory = "steps:Step"

[[model]]
name = "zeros"
factory = "plain:Zeros"
share = 0.1
"""
STEP = "/v2/models/step/infer"


def wait_for_draining(node: RunningNode) -> None:
    wait_until(
        lambda: node.http.get("/v2/health/ready").status_code == 400, "the node says it drains"
    )


def listens(node: RunningNode) -> bool:
    try:
        node.http.get("/v2/health/live")
    except httpx.ConnectError:
        return False
    except httpx.RemoteProtocolError:
        return True  # it was let in just before the end, so somebody did listen
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered_and_nothing_new_is_taken(
    start_node: StartNode, pool: ThreadPoolExecutor, number: signal.Signals
) -> None:
    node = start_node(CONFIGURATION)
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        waiting = pool.submit(infer, node, "step", 2)
        node.wait_for_waiting("step", 1)
        node.signal(number)
        wait_for_draining(node)
        assert "shutting down" in error(node.http.get("/v2/health/ready"), 400)
        assert node.http.get("/v2/health/live").status_code == 200
        error(node.http.get("/v2/models/step/ready"), 400)
        refused = infer(node, "step", 3)
        assert "shutting down" in error(refused, 503)
        assert int(refused.headers["retry-after"]) >= 1
        # New connections, too, are told where they stand.
        fresh = httpx.get(f"http://127.0.0.1:{node.port}/v2/health/live")
        assert fresh.status_code == 200
        assert node.process.poll() is None
    assert result(running.result()) + result(waiting.result()) == [2, 3]
    assert node.wait_ended() == 0
    assert node.ran() == ["step: 1", "step: 2"]


def test_an_idle_node_ends_whoever_is_connected(start_node: StartNode) -> None:
    node = start_node(CONFIGURATION)
    with wire(node) as silent, wire(node) as talking:
        talking.send(head("/v2/health/live", method="GET"))
        assert talking.answer()[0] == 200
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0
        assert silent.read_to_the_end() == talking.read_to_the_end() == b""


def test_a_second_signal_ends_the_node_at_once(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(CONFIGURATION)
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        node.signal(signal.SIGTERM)
        wait_for_draining(node)
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 143
        wait_until(lambda: not node.home.processes(), "the worker ends, too")
        with contextlib.suppress(httpx.TransportError):  # there may be no time left to say so
            assert "shuts down" in error(running.result(), 500)


def test_what_is_not_done_by_the_drain_limit_is_ended_with_the_reason(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(CONFIGURATION.replace("drain_seconds = 25", "drain_seconds = 0.3"))
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        waiting = pool.submit(infer, node, "step", 2)
        node.wait_for_waiting("step", 1)
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0
        assert "shuts down" in error(running.result(), 500)
        assert "shuts down" in error(waiting.result(), 503)


def test_an_answer_under_way_is_sent_to_its_end(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(CONFIGURATION)
    count = 10_000_000
    content = {
        "inputs": [tensor([count], name="count", shape=[1])],
        "parameters": {"binary_data_output": True},
    }
    with node.http.stream("POST", "/v2/models/zeros/infer", json=content) as answer:
        node.signal(signal.SIGTERM)
        wait_until(lambda: not listens(node), "the node listens no more")
        assert len(answer.read()) > 4 * count
    assert node.wait_ended() == 0


@pytest.mark.parametrize("sent", [0, 20])
def test_a_request_whose_body_is_still_coming_is_answered_or_refused(
    start_node: StartNode, pool: ThreadPoolExecutor, sent: int
) -> None:
    node = start_node(CONFIGURATION)
    content = orjson.dumps(body(1))
    with node.shut("step") as gate, wire(node) as client:
        running = pool.submit(infer, node, "step", 5)
        node.wait_for_run("step: 5")
        client.send(head(STEP, {"Content-Length": len(content)}), content[:sent])
        assert node.status()["open_requests"] == 1
        node.signal(signal.SIGTERM)
        wait_for_draining(node)
        client.send(content[sent:])
        gate.unlink()
        assert client.answer()[0] in (200, 503)
        assert result(running.result()) == [6]
    assert node.wait_ended() == 0


def test_a_body_that_never_comes_does_not_keep_the_node(start_node: StartNode) -> None:
    node = start_node(CONFIGURATION)
    with wire(node) as client:
        client.send(head(STEP, {"Content-Length": 100}), b"{")
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0


def test_an_answer_that_nobody_reads_does_not_keep_the_node(start_node: StartNode) -> None:
    node = start_node(CONFIGURATION)
    given = tensor([10_000_000], name="count", shape=[1])
    content = orjson.dumps({"inputs": [given], "parameters": {"binary_data_output": True}})
    with wire(node) as client:
        client.send(head("/v2/models/zeros/infer", {"Content-Length": len(content)}), content)
        wait_until(lambda: node.model("zeros")["answered"] == 1, "the model has run")
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0


def test_a_model_that_is_still_loading_does_not_keep_the_node(start_node: StartNode) -> None:
    node = start_node(
        CONFIGURATION, prepare=lambda home: (home.gates / "load-step").touch(), wait=False
    )

    wait_until(node.is_listening, "the node listens")
    wait_until(lambda: node.model("step")["state"] == "LOADING", "the model is loading")
    assert "models are loading" in error(node.local.get("/v2/health/ready"), 400)
    error(node.local.post(STEP, json=body(1)), 503)
    node.signal(signal.SIGTERM)
    assert node.wait_ended() == 0
    assert "Try" not in node.output.read_text()


def test_a_model_that_is_being_loaded_anew_does_not_keep_the_node(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(CONFIGURATION)
    processes = len(node.home.processes())
    with node.shut("load-step"):
        loading = pool.submit(node.local.post, "/v2/repository/models/step/load")
        wait_until(lambda: len(node.home.processes()) > processes, "a second worker is there")
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 0
        error(loading.result(), 400)
