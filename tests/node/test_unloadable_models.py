"""Models that cannot be loaded: the node says why, and serves the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import Home, RunningNode

REASONS = {
    "raises": "RuntimeError: the weights are gone",
    "exits": "SystemExit: the weights are gone",
    "aborts": "SIGABRT",
    "returns_nothing": "inputs and outputs",
    "SaysNothing": "inputs and outputs",
    "missing": "no callable 'missing'",
    "not_callable": "no callable 'not_callable'",
}


def table(name: str, source: str) -> str:
    return f'[[model]]\nname = "{name}"\n{source}\n'


CONFIGURATION = "\n".join(
    [
        "[http]\nopen_model_control = true",
        table("healthy", 'factory = "steps:Step"'),
        *(table(name, f'factory = "unloadable:{name}"') for name in REASONS),
        table("no-module", 'factory = "nowhere:Model"'),
        table("bad-syntax", 'factory = "bad_syntax:Model"'),
        table("cut-short", 'onnx = "short.onnx"'),
        table("empty", 'onnx = "empty.onnx"'),
        table("absent", 'onnx = "absent.onnx"'),
        table("text", 'onnx = "treadle.toml"'),
        table("no-package", 'onnx = "package:no_such_package/model.onnx"'),
        table("slow", 'factory = "steps:Step"\nload_limit_seconds = 0.5'),
        table("fixed-batch", 'factory = "plain:Zeros"\nmax_batch = 4'),
    ]
)


def onnx_doubler() -> bytes:
    """An ONNX model that returns ``y = x + x`` for any number of rows of three."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubler",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    def prepare(home: Home) -> None:
        (home.folder / "bad_syntax.py").write_text("class Model:\n    def broken(:\n")
        content = onnx_doubler()
        (home.folder / "short.onnx").write_bytes(content[: len(content) // 2])
        (home.folder / "empty.onnx").write_bytes(b"")
        (home.gates / "load-slow").touch()

    return start_shared_node(CONFIGURATION, prepare=prepare)


def entry(node: RunningNode, model: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        m for m in node.http.post("/v2/repository/index").json() if m["name"] == model
    )
    return found


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        *REASONS.items(),
        ("no-module", "No module named 'nowhere'"),
        ("bad-syntax", "SyntaxError"),
        ("cut-short", "short.onnx is not a model that can be run"),
        ("empty", "empty.onnx is not a model that can be run"),
        ("absent", "no such file"),
        ("text", "treadle.toml is not a model that can be run"),
        ("no-package", "package 'no_such_package' is not installed"),
        ("slow", "longer than 0.5 s"),
        ("fixed-batch", "must be -1"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_unavailable_with_the_reason(
    node: RunningNode, model: str, reason: str
) -> None:
    listed = entry(node, model)
    assert listed["state"] == "UNAVAILABLE"
    assert reason in listed["reason"]
    assert reason in error(infer(node, model, 1), 503)
    assert reason in error(node.http.get(f"/v2/models/{model}/ready"), 400)
    assert reason in error(node.http.post(f"/v2/repository/models/{model}/load"), 400)
    assert node.model(model)["pids"] == []


def test_the_other_models_are_served(node: RunningNode) -> None:
    assert result(infer(node, "healthy", 1)) == [2]


def test_the_node_says_that_it_is_not_ready_and_which_models_are_why(node: RunningNode) -> None:
    assert "treadle is not ready" in node.output.read_text()
    text = error(node.http.get("/v2/health/ready"), 400)
    assert "raises" in text
    assert "cut-short" in text
    assert "healthy" not in text
    assert node.http.get("/v2/health/live").status_code == 200


def test_a_model_that_was_mended_is_loaded(start_node: StartNode) -> None:
    node = start_node(table("mended", 'onnx = "model.onnx"'))
    assert "no such file" in error(node.http.get("/v2/health/ready"), 400)
    (node.home.folder / "model.onnx").write_bytes(onnx_doubler())
    assert node.local.post("/v2/repository/models/mended/load").status_code == 200
    assert node.http.get("/v2/health/ready").status_code == 200
    given = {"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
    answer = node.http.post("/v2/models/mended/infer", json={"inputs": [given]})
    assert result(answer) == [2, 4, 6, 8, 10, 12]


def test_an_onnx_model_is_served_in_batches(start_node: StartNode) -> None:
    def prepare(home: Home) -> None:
        (home.folder / "model.onnx").write_bytes(onnx_doubler())

    node = start_node(table("doubler", 'onnx = "model.onnx"\nmax_batch = 4'), prepare=prepare)
    metadata = node.http.get("/v2/models/doubler").json()
    assert metadata["platform"] == "onnxruntime_onnx"
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    answer = node.http.post(
        "/v2/models/doubler/infer",
        content=np.ones((2, 3), np.float32).tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert answer.content.endswith(np.full((2, 3), 2, np.float32).tobytes())


def test_one_unloadable_model_does_not_keep_those_that_share_its_worker_from_loading(
    start_node: StartNode,
) -> None:
    node = start_node(
        table("first", 'factory = "steps:Step"\nworker = "both"')
        + table("broken", 'factory = "unloadable:raises"\nworker = "both"')
        + table("last", 'factory = "steps:Step"\nworker = "both"')
    )
    assert result(infer(node, "first", 1)) == [2]
    assert result(infer(node, "last", 1)) == [2]
    assert "the weights are gone" in entry(node, "broken")["reason"]
    assert node.model("first")["pids"] == node.model("last")["pids"] != []


def test_a_model_with_very_many_parameters_is_loaded_or_refused_at_once(
    start_node: StartNode,
) -> None:
    labels = [f"label {number}" for number in range(20_000)]
    node = start_node(table("labels", f'factory = "steps:Step"\nparameters = {{ all = {labels} }}'))
    listed = entry(node, "labels")
    assert listed["state"] == "READY" or "parameters" in listed["reason"]
