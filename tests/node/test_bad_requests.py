"""Requests that are wrong in themselves: each is refused with a reason, none does harm."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from .bodies import body, error, infer, result, tensor
from .conftest import StartNode
from .nodes import RunningNode

CONFIGURATION = """
[http]
max_body_bytes = 200_000

[[model]]
name = "step"
factory = "steps:Step"
max_batch = 8
worker = "all"
""" + "".join(
    f"""
[[model]]
name = "{datatype}"
factory = "plain:Echo"
parameters = {{ datatype = "{datatype}", rank = 1 }}
worker = "all"
"""
    for datatype in ("BOOL", "INT8", "UINT8", "INT64", "UINT64", "FP32", "BYTES")
)
STEP = "/v2/models/step/infer"


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


def refused(node: RunningNode, content: dict[str, Any], model: str = "step") -> str:
    return error(node.http.post(f"/v2/models/{model}/infer", json=content), 400)


def refused_text(node: RunningNode, content: str | bytes) -> str:
    return error(node.http.post(STEP, content=content), 400)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"42",
        b"\xff\xfe",
        b'{"inputs": null}',
        b'{"inputs": {}}',
        b'{"inputs": [{}]}',
        b'{"inputs": [1]}',
        b'{"inputs": []} {}',
        b'{"inputs": [{"name": "\xff"}]}',
        b"[" * 100_000,
        b'{"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 1], "data": ' + b"[" * 50_000,
    ],
)
def test_malformed_json_is_refused(node: RunningNode, content: bytes) -> None:
    refused_text(node, content)


def test_a_request_without_inputs_is_refused(node: RunningNode) -> None:
    assert "Missing: x" in refused(node, {"inputs": []})


def test_an_input_that_the_model_does_not_know_is_refused(node: RunningNode) -> None:
    text = refused(node, {"inputs": [tensor([1]), tensor([1], name="z")]})
    assert "'z'" in text
    assert "expected: x" in text


def test_an_input_given_twice_is_refused(node: RunningNode) -> None:
    assert "twice" in refused(node, {"inputs": [tensor([1]), tensor([1])]})


def test_another_datatype_than_the_models_is_refused(node: RunningNode) -> None:
    text = refused(node, {"inputs": [tensor([1.0], datatype="FP32")]})
    assert "'FP32'" in text
    assert "'INT64'" in text


@pytest.mark.parametrize("datatype", ["", "int64", "COMPLEX64", "TEXT"])
def test_an_unknown_datatype_is_refused(node: RunningNode, datatype: str) -> None:
    assert "INT64" in refused(node, {"inputs": [tensor([1], datatype=datatype)]})


@pytest.mark.parametrize("shape", [[], [1], [2], [1, 2], [2, 2], [1, 1, 1], [2, 1], [0, 1]])
def test_a_shape_that_disagrees_with_model_or_data_is_refused(
    node: RunningNode, shape: list[int]
) -> None:
    refused(node, {"inputs": [tensor([1], shape=shape)]})


@pytest.mark.parametrize(
    "shape",
    [[-1, 1], [2**62, 1], [2**63, 1], [2**64, 1], [2**48, 2**48], [1.5, 1], ["1", 1], [None, 1]],
)
def test_an_absurd_shape_is_refused(node: RunningNode, shape: list[Any]) -> None:
    refused(node, {"inputs": [tensor([1], shape=shape)]})


@pytest.mark.parametrize("shape", [[1] * 1000, [2**48] * 32, [0] * 32])
def test_a_shape_of_very_many_dimensions_is_refused(node: RunningNode, shape: list[int]) -> None:
    refused(node, {"inputs": [tensor([1], shape=shape)]})


@pytest.mark.parametrize("data", [[], [1], [1, 2], [1, 2, 3, 4], [[1], [2]], [[1, 2, 3]]])
def test_data_too_short_or_too_long_is_refused(node: RunningNode, data: list[Any]) -> None:
    assert "[3, 1]" in refused(node, {"inputs": [tensor(data, shape=[3, 1])]})


@pytest.mark.parametrize("data", [[[1], 2, 3], [[1], [2, 3]], [[[1]], [[2]], [[3]]], {"0": 1}, "1"])
def test_ragged_or_misnested_data_is_refused(node: RunningNode, data: object) -> None:
    refused(node, {"inputs": [tensor(data, shape=[3, 1])]})


def test_an_input_without_data_is_refused(node: RunningNode) -> None:
    given = tensor([1])
    del given["data"]
    assert "neither data nor binary_data_size" in refused(node, {"inputs": [given]})


@pytest.mark.parametrize("number", ["NaN", "1.5", "null", '"1"', "true", "1e400", "Infinity"])
@pytest.mark.parametrize("datatype", ["INT64", "UINT8"])
def test_what_is_no_whole_number_is_refused_where_one_is_due(
    node: RunningNode, datatype: str, number: str
) -> None:
    content = orjson.dumps({"inputs": [tensor([1], datatype=datatype, shape=[1])]}).replace(
        b'"data":[1]', f'"data":[{number}]'.encode()
    )
    error(node.http.post(f"/v2/models/{datatype}/infer", content=content), 400)


@pytest.mark.parametrize(
    ("datatype", "number"),
    [
        ("INT8", 128),
        ("INT8", -129),
        ("UINT8", 256),
        ("UINT8", -1),
        ("INT64", 2**63),
        ("INT64", -(2**63) - 1),
        ("UINT64", 2**64),
        ("UINT64", -1),
        ("UINT64", 10**400),
    ],
)
def test_a_whole_number_out_of_range_is_refused(
    node: RunningNode, datatype: str, number: int
) -> None:
    content = orjson.dumps({"inputs": [tensor([1], datatype=datatype, shape=[1])]}).replace(
        b'"data":[1]', f'"data":[{number}]'.encode()
    )
    error(node.http.post(f"/v2/models/{datatype}/infer", content=content), 400)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("BOOL", [1]), ("BOOL", ["true"]), ("FP32", ["1"]), ("FP32", [None]), ("BYTES", [1])],
)
def test_an_element_of_another_kind_is_refused(
    node: RunningNode, datatype: str, data: list[object]
) -> None:
    refused(node, {"inputs": [tensor(data, datatype=datatype, shape=[1])]}, datatype)


@pytest.mark.parametrize("datatype", ["INT64", "FP32", "BYTES"])
def test_no_elements_at_all_are_served_where_the_model_takes_any_number(
    node: RunningNode, datatype: str
) -> None:
    content = {"inputs": [tensor([], datatype=datatype, shape=[0])]}
    answer = node.http.post(f"/v2/models/{datatype}/infer", json=content)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["shape"] == [0]
    assert answer.json()["outputs"][0]["data"] == []


def test_more_rows_than_a_batch_may_have_are_refused(node: RunningNode) -> None:
    assert "1 to 8" in refused(node, body(*range(9)))


@pytest.mark.parametrize("where", ["request", "input", "output"])
def test_an_unknown_parameter_is_refused_by_name(node: RunningNode, where: str) -> None:
    content = body(1)
    content["outputs"] = [{"name": "y"}]
    place = {"request": content, "input": content["inputs"][0], "output": content["outputs"][0]}
    place[where]["parameters"] = {"sequence_id": 7}
    assert "unknown parameter 'sequence_id'" in refused(node, content)


def test_an_unknown_output_is_refused(node: RunningNode) -> None:
    assert "'z'" in refused(node, body(1) | {"outputs": [{"name": "z"}]})


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/nobody/infer",
        "/v2/models/step/versions/2/infer",
        "/v2/models/..%2F..%2Fetc/infer",
        "/v2/models/%00/infer",
        "/v2/models/" + "a" * 5000 + "/infer",
    ],
)
def test_an_unknown_model_or_version_is_not_found(node: RunningNode, path: str) -> None:
    assert "not found" in error(node.http.post(path, json=body(1)), 404).lower()


@pytest.mark.parametrize("path", ["/", "/v3", "/v2/models", "/v2/models/step/explain", "/v2/infer"])
def test_an_unknown_path_is_not_found(node: RunningNode, path: str) -> None:
    error(node.http.get(path), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", STEP, "POST"),
        ("PUT", STEP, "POST"),
        ("GET", "/v2/models/step/versions/1/infer", "POST"),
        ("POST", "/v2/models/step", "GET"),
        ("DELETE", "/v2/models/step", "GET"),
        ("POST", "/v2/health/ready", "GET"),
        ("GET", "/v2/repository/index", "POST"),
        ("GET", "/v2/repository/models/step/load", "POST"),
        ("POST", "/metrics", "GET"),
    ],
)
def test_a_wrong_verb_is_told_the_right_one(
    node: RunningNode, method: str, path: str, allowed: str
) -> None:
    answer = node.http.request(method, path)
    error(answer, 405)
    assert allowed in answer.headers["allow"].split(", ")


def test_an_unknown_content_encoding_is_refused_with_those_allowed(node: RunningNode) -> None:
    answer = node.http.post(STEP, content=b"x", headers={"Content-Encoding": "br"})
    text = error(answer, 400)
    assert "gzip" in text
    assert "deflate" in text


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("content", [b"", b"not compressed", gzip.compress(b"{}" * 50)[:20]])
def test_a_body_that_is_not_compressed_as_it_says_is_refused(
    node: RunningNode, encoding: str, content: bytes
) -> None:
    error(node.http.post(STEP, content=content, headers={"Content-Encoding": encoding}), 400)


def test_a_body_that_unpacks_to_more_than_a_body_may_have_is_refused(node: RunningNode) -> None:
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 200_000
    answer = node.http.post(STEP, content=bomb, headers={"Content-Encoding": "gzip"})
    assert "200000" in error(answer, 413)
