"""Requests of unequal lengths share batches, and each gets its own back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .bodies import error, tensor
from .conftest import StartNode
from .nodes import RunningNode

CONFIGURATION = """
[[model]]
name = "sentences"
factory = "sentences:Sentences"
max_batch = 16
p99_seconds = 30.0
warm_up = [2]

[model.padding]
lengths = [4, 16, 64]
inputs = { tokens = 1 }
outputs = { next = 1 }
fill = { tokens = -1 }
length_input = "lengths"

[[model]]
name = "wrong"
factory = "sentences:Sentences"
max_batch = 16
padding = { lengths = [4], inputs = { lengths = 1 } }
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


def tokens(length: int, rows: int = 1) -> list[list[int]]:
    return [[10 * length + row] * length for row in range(rows)]


def ask(node: RunningNode, length: int, rows: int = 1) -> dict[str, Any]:
    """Send a request; its outputs by name, each as its shape and data."""
    data = [token for row in tokens(length, rows) for token in row]
    content = {"inputs": [tensor(data, name="tokens", shape=[rows, length])]}
    answer = node.http.post("/v2/models/sentences/infer", json=content)
    assert answer.status_code == 200, answer.text
    return {o["name"]: (o["shape"], o["data"]) for o in answer.json()["outputs"]}


def batches(node: RunningNode) -> tuple[int, int]:
    """Requests that succeeded, and batches that ran."""
    found = node.http.get("/v2/models/sentences/stats").json()["model_stats"][0]
    return found["inference_stats"]["success"]["count"], found["execution_count"]


def test_every_length_is_run_before_requests_come(node: RunningNode) -> None:
    assert node.ran()[:3] == ["sentences: 2x4", "sentences: 2x16", "sentences: 2x64"]


def test_requests_of_unequal_lengths_share_batches(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    node.forget_what_ran()
    requests_before, batches_before = batches(node)
    sizes = [(1, 1), (3, 2), (4, 1), (5, 1), (11, 3), (16, 1), (2, 1), (17, 1), (40, 2)]
    with node.shut("sentences"):
        first = pool.submit(ask, node, 64)
        node.wait_for_run("sentences: 1x64")
        answers = [pool.submit(ask, node, length, rows) for length, rows in sizes]
        node.wait_for_waiting("sentences", len(sizes))
    assert first.result()["sum"] == ([1], [640 * 64])
    for (length, rows), answer in zip(sizes, answers, strict=True):
        sent = tokens(length, rows)
        assert answer.result() == {
            "next": ([rows, length], [token + 1 for row in sent for token in row]),
            "sum": ([rows], [sum(row) for row in sent]),
        }
    requests, ran = batches(node)
    assert (requests - requests_before, ran - batches_before) == (len(sizes) + 1, 4)
    assert sorted(node.ran()) == [
        "sentences: 1x64",
        "sentences: 3x64",
        "sentences: 5x16",
        "sentences: 5x4",
    ]


def test_a_request_that_is_too_long_is_refused_with_the_reason(node: RunningNode) -> None:
    content = {"inputs": [tensor([1] * 65, name="tokens", shape=[1, 65])]}
    text = error(node.http.post("/v2/models/sentences/infer", json=content), 400)
    assert text == "the inputs tokens are 65 long; model 'sentences' takes at most 64"


def test_clients_neither_see_nor_send_the_lengths(node: RunningNode) -> None:
    metadata = node.http.get("/v2/models/sentences").json()
    assert metadata["inputs"] == [{"name": "tokens", "datatype": "INT64", "shape": [-1, -1]}]
    content = {
        "inputs": [
            tensor([1, 2], name="tokens", shape=[1, 2]),
            tensor([2], name="lengths", shape=[1]),
        ]
    }
    text = error(node.http.post("/v2/models/sentences/infer", json=content), 400)
    assert "unexpected inference input 'lengths'" in text


def test_padding_that_does_not_fit_the_model_is_said_when_it_loads(node: RunningNode) -> None:
    model = node.model("wrong")
    assert model["state"] == "UNAVAILABLE"
    assert "padding.inputs: lengths = 1: its shape is [-1]" in model["reason"]
