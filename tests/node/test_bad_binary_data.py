"""Binary tensor data whose sizes lie: no caller reads or writes what is not its own."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import httpx
import numpy as np
import pytest

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
max_batch = 8
worker = "all"

[[model]]
name = "text"
factory = "plain:Echo"
parameters = { datatype = "BYTES" }
max_batch = 8
worker = "all"

[[model]]
name = "truth"
factory = "plain:Echo"
parameters = { datatype = "BOOL" }
worker = "all"
"""
TWO = np.array([[1], [2]], np.int64).tobytes()


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> Iterator[RunningNode]:
    """The node, which must serve on after each test, with the worker that it started with."""
    pids = shared.model("step")["pids"]
    yield shared
    assert result(infer(shared, "step", 1)) == [2]
    assert shared.model("step")["pids"] == pids


def post(
    node: RunningNode,
    data: bytes,
    size: object,
    *,
    model: str = "step",
    datatype: str = "INT64",
    shape: tuple[int, ...] = (2, 1),
    header_length: object = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> httpx.Response:
    """Send ``data`` with a JSON header that says it has ``size`` bytes."""
    given = {"name": "x", "datatype": datatype, "shape": shape, **more}
    given["parameters"] = {"binary_data_size": size}
    header = json.dumps({"inputs": [given]}).encode()
    length = len(header) if header_length is None else header_length
    return node.http.post(
        f"/v2/models/{model}/infer",
        content=header + data,
        headers=[(b"Inference-Header-Content-Length", str(length).encode())],
    )


def packed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def test_an_honest_size_is_served(node: RunningNode) -> None:
    assert result(post(node, TWO, len(TWO))) == [2, 3]


@pytest.mark.parametrize("size", [0, 1, 8, 15, 17, 24, 2**31, 2**32, 2**62, 2**70, -1, -16])
def test_a_size_that_is_not_the_datas_is_refused(node: RunningNode, size: int) -> None:
    error(post(node, TWO, size), 400)


@pytest.mark.parametrize("size", ["16", 16.0, True, None, [16]])
def test_a_size_that_is_no_whole_number_is_refused(node: RunningNode, size: object) -> None:
    error(post(node, TWO, size), 400)


@pytest.mark.parametrize("data", [b"", TWO[:8], TWO[:-1]])
def test_less_data_than_was_announced_is_refused(node: RunningNode, data: bytes) -> None:
    assert "announces 16 bytes" in error(post(node, data, 16), 400)


def test_more_data_than_was_announced_is_refused(node: RunningNode) -> None:
    assert "additional input data: 3 bytes" in error(post(node, TWO + b"abc", 16), 400)


def test_data_that_does_not_fill_its_shape_is_refused(node: RunningNode) -> None:
    assert "needs 24" in error(post(node, TWO, 16, shape=(3, 1)), 400)


def test_data_both_ways_is_refused(node: RunningNode) -> None:
    assert "both" in error(post(node, TWO, 16, more={"data": [1, 2]}), 400)


@pytest.mark.parametrize("length", [-1, "x", "1.5", "", "+5", 10**30, "١"])
def test_a_header_length_that_is_none_is_refused(node: RunningNode, length: object) -> None:
    error(post(node, TWO, 16, header_length=length), 400)


@pytest.mark.parametrize("length", [1, 50, 10_000])
def test_a_header_length_that_is_not_the_headers_is_refused(node: RunningNode, length: int) -> None:
    error(post(node, TWO, 16, header_length=length), 400)


@pytest.mark.parametrize("size", [0, 1, 7, 9, 12, 800])
def test_a_raw_body_that_fills_no_shape_is_refused(node: RunningNode, size: int) -> None:
    answer = node.http.post(
        "/v2/models/step/infer",
        content=b"\1" * size,
        headers={"Inference-Header-Content-Length": "0"},
    )
    error(answer, 400)


def test_text_with_honest_lengths_is_served(node: RunningNode) -> None:
    data = packed(b"a", b"bc")
    answer = post(node, data, len(data), model="text", datatype="BYTES")
    assert result(answer) == ["a", "bc"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed(b"a"),
        packed(b"a", b"b", b"c"),
        packed(b"a", b"b") + b"c",
        packed(b"a", b"b")[:-1],
        packed(b"a") + b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff" + packed(b"a", b"b"),
        packed(b"a") + b"\0\0",
    ],
)
def test_text_whose_lengths_lie_is_refused(node: RunningNode, data: bytes) -> None:
    error(post(node, data, len(data), model="text", datatype="BYTES"), 400)


def test_text_of_more_elements_than_there_are_bytes_is_refused(node: RunningNode) -> None:
    data = packed(b"a")
    answer = post(node, data, len(data), model="text", datatype="BYTES", shape=(8, 2**40))
    error(answer, 400)


def test_text_that_is_no_utf8_can_be_had_as_binary_only(node: RunningNode) -> None:
    data = packed(b"\xff")
    answer = post(node, data, len(data), model="text", datatype="BYTES", shape=(1, 1))
    assert "binary" in error(answer, 400)


def test_a_truth_value_that_is_neither_is_refused(node: RunningNode) -> None:
    answer = post(node, b"\1\2", 2, model="truth", datatype="BOOL")
    assert "BOOL" in error(answer, 400)


def test_a_raw_truth_value_that_is_neither_is_refused(node: RunningNode) -> None:
    answer = node.http.post(
        "/v2/models/truth/infer",
        content=b"\1\2",
        headers={"Inference-Header-Content-Length": "0"},
    )
    error(answer, 400)
