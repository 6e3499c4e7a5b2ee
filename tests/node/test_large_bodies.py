"""Large JSON bodies, which are read and written in a process of their own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from .bodies import error, infer, result, tensor
from .conftest import StartNode
from .nodes import RunningNode

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
worker = "all"
""" + "".join(
    f"""
[[model]]
name = "{datatype}"
factory = "plain:Echo"
parameters = {{ datatype = "{datatype}", rank = 1 }}
worker = "all"
"""
    for datatype in ("INT64", "FP32", "BF16", "BYTES")
)
COUNT = 50_000


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> Iterator[RunningNode]:
    yield shared
    assert result(infer(shared, "step", 1)) == [2]


def content(data: list[Any], datatype: str) -> dict[str, Any]:
    return {"inputs": [tensor(data, datatype=datatype, shape=[len(data)])]}


@pytest.mark.parametrize(
    ("datatype", "element"), [("INT64", 7), ("FP32", 0.5), ("BF16", -2.0), ("BYTES", "wöven")]
)
def test_a_large_body_comes_back_as_it_was(
    node: RunningNode, datatype: str, element: object
) -> None:
    data = [element] * COUNT
    answer = node.http.post(f"/v2/models/{datatype}/infer", json=content(data, datatype))
    assert result(answer) == data


def test_numbers_that_json_does_not_know_are_null(node: RunningNode) -> None:
    data = np.array([np.nan, np.inf, 1], np.float32).tobytes()
    given = {"name": "x", "datatype": "FP32", "shape": [3]}
    header = orjson.dumps({"inputs": [given | {"parameters": {"binary_data_size": len(data)}}]})
    answer = node.http.post(
        "/v2/models/FP32/infer",
        content=header + data,
        headers={"Inference-Header-Content-Length": str(len(header))},
    )
    assert result(answer) == [None, None, 1.0]


@pytest.mark.parametrize("last", [1.5, "7", None, True, 2**63])
def test_one_bad_element_among_many_is_refused(node: RunningNode, last: object) -> None:
    text = orjson.dumps(content([7] * COUNT, "INT64"))
    bad = text.replace(b",7]", b"," + json.dumps(last).encode() + b"]")
    error(node.http.post("/v2/models/INT64/infer", content=bad), 400)


def test_a_large_body_that_ends_too_early_is_refused(node: RunningNode) -> None:
    text = orjson.dumps(content([7] * COUNT, "INT64"))
    error(node.http.post("/v2/models/INT64/infer", content=text[:-10]), 400)


def test_a_large_body_that_disagrees_with_its_shape_is_refused(node: RunningNode) -> None:
    given = content([7] * COUNT, "INT64")
    given["inputs"][0]["shape"] = [COUNT + 1]
    assert str(COUNT + 1) in error(node.http.post("/v2/models/INT64/infer", json=given), 400)


def test_the_process_that_reads_them_is_replaced_if_it_is_killed(node: RunningNode) -> None:
    def post() -> int:
        return node.http.post(
            "/v2/models/INT64/infer", json=content([7] * COUNT, "INT64")
        ).status_code

    assert post() == 200
    helpers = [
        pid
        for pid in node.home.processes()
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert helpers
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    assert post() in (200, 503)
    assert post() == 200
