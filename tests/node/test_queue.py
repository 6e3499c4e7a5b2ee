"""Requests that wait: how many may, for how long, and what if nobody wants them any more."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import orjson
import pytest

from .bodies import body, error, infer, result
from .conftest import StartNode
from .nodes import RunningNode, wait_until

CONFIGURATION = """
[[model]]
name = "narrow"
factory = "steps:Step"
queue_limit = 1

[[model]]
name = "slow"
factory = "steps:Step"
parameters = { seconds = 0.3 }

[[model]]
name = "quick"
factory = "steps:Step"
worker = "slow"

[[model]]
name = "impatient"
factory = "steps:Step"
timeout_seconds = 0.2
worker = "slow"
"""


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> RunningNode:
    shared.forget_what_ran()
    return shared


def send_and_keep(node: RunningNode, model: str, x: int) -> socket.socket:
    """A connection with a request on it whose answer nobody has read yet."""
    content = orjson.dumps(body(x))
    connection = socket.create_connection(("127.0.0.1", node.port))
    connection.sendall(
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: node\r\n"
        f"Content-Length: {len(content)}\r\n\r\n".encode()
        + content
    )
    return connection


def test_a_request_that_cannot_meet_its_timeout_is_refused_with_the_reason(
    node: RunningNode,
) -> None:
    assert result(infer(node, "slow", 1)) == [2]  # now the node knows how long it takes
    text = error(infer(node, "slow", 2, timeout=1000), 503)
    assert "times out in 0.001 s" in text
    assert "'slow' takes" in text
    assert node.ran() == ["slow: 1"]


def test_a_request_whose_timeout_passes_in_the_queue_is_not_run(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("narrow"):
        running = pool.submit(infer, node, "narrow", 1)
        node.wait_for_run("narrow: 1")
        text = error(infer(node, "quick", 2, timeout=100_000), 503)
    assert "timeout expired" in text
    assert result(running.result()) == [2]
    assert result(infer(node, "quick", 3)) == [4]
    assert node.ran() == ["narrow: 1", "quick: 3"]


def test_a_model_has_a_timeout_of_its_own(node: RunningNode, pool: ThreadPoolExecutor) -> None:
    with node.shut("narrow"):
        running = pool.submit(infer, node, "narrow", 1)
        node.wait_for_run("narrow: 1")
        assert "timeout expired" in error(infer(node, "impatient", 2), 503)
    assert result(running.result()) == [2]


def test_a_client_cannot_lengthen_its_models_timeout(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("narrow"):
        running = pool.submit(infer, node, "narrow", 1)
        node.wait_for_run("narrow: 1")
        assert "timeout expired" in error(infer(node, "impatient", 2, timeout=10**9), 503)
    assert result(running.result()) == [2]


def test_timeout_zero_is_the_models_own(node: RunningNode) -> None:
    assert result(infer(node, "narrow", 1, timeout=0)) == [2]


@pytest.mark.parametrize("nonsense", [-1, 0.5, "soon", True])
def test_a_timeout_that_is_none_is_refused(node: RunningNode, nonsense: object) -> None:
    assert "timeout" in error(infer(node, "narrow", 1, timeout=nonsense), 400)


@pytest.mark.parametrize("microseconds", [10**15, 2**62])
def test_a_timeout_of_years_is_as_good_as_none(node: RunningNode, microseconds: int) -> None:
    assert result(infer(node, "narrow", 1, timeout=microseconds)) == [2]


def test_a_full_queue_refuses_and_says_when_to_come_again(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("narrow"):
        running = pool.submit(infer, node, "narrow", 1)
        node.wait_for_run("narrow: 1")
        waiting = pool.submit(infer, node, "narrow", 2)
        node.wait_for_waiting("narrow", 1)
        refused = infer(node, "narrow", 3)
    assert "queue of model 'narrow' is full" in error(refused, 503)
    assert int(refused.headers["retry-after"]) >= 1
    assert result(running.result()) + result(waiting.result()) == [2, 3]
    assert node.ran() == ["narrow: 1", "narrow: 2"]


def test_a_full_queue_of_one_model_leaves_the_others_theirs(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("narrow"):
        sent = [pool.submit(infer, node, "narrow", 1)]
        node.wait_for_run("narrow: 1")
        sent.append(pool.submit(infer, node, "narrow", 2))
        node.wait_for_waiting("narrow", 1)
        sent.append(pool.submit(infer, node, "slow", 3))
        node.wait_for_waiting("slow", 1)
    assert [x for answer in sent for x in result(answer.result())] == [2, 3, 4]


def test_a_client_that_goes_away_frees_its_place(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("narrow"):
        running = pool.submit(infer, node, "narrow", 1)
        node.wait_for_run("narrow: 1")
        with send_and_keep(node, "narrow", 2):
            node.wait_for_waiting("narrow", 1)
        node.wait_for_waiting("narrow", 0)
        taking_its_place = pool.submit(infer, node, "narrow", 3)
        node.wait_for_waiting("narrow", 1)
    assert result(running.result()) + result(taking_its_place.result()) == [2, 4]
    assert node.ran() == ["narrow: 1", "narrow: 3"]


def test_a_client_that_goes_away_while_its_request_runs_leaves_the_model_usable(
    node: RunningNode,
) -> None:
    with node.shut("narrow"), send_and_keep(node, "narrow", 1):
        node.wait_for_run("narrow: 1")
        wait_until(lambda: node.status()["open_requests"] == 1, "one request is open")
    wait_until(lambda: node.status()["open_requests"] == 0, "no request is open")
    assert result(infer(node, "narrow", 2)) == [3]


def test_a_client_that_gives_up_waiting_is_counted_as_such(node: RunningNode) -> None:
    with node.shut("narrow"), pytest.raises(httpx.ReadTimeout):
        node.http.post("/v2/models/narrow/infer", json=body(1), timeout=0.2)
    wait_until(
        lambda: 'model="narrow",outcome="abandoned"' in node.http.get("/metrics").text,
        "the metrics count an abandoned request",
    )


def test_a_delay_too_short_for_a_timer_is_no_obstacle(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node("""
        [[model]]
        name = "step"
        factory = "steps:Step"
        max_batch = 4
        max_delay_seconds = 0.0004
    """)
    answers = list(pool.map(lambda x: infer(node, "step", x), range(200)))
    assert [result(answer) for answer in answers] == [[x + 1] for x in range(200)]


def test_the_status_says_how_many_may_wait_and_for_how_long(node: RunningNode) -> None:
    narrow = node.model("narrow")
    assert (narrow["queue_limit"], narrow["max_delay_seconds"]) == (1, 0.0)
