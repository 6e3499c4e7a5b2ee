"""The server as Triton's own client sees it: what it says of itself and of its models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import treadle

from .conftest import StartNode
from .nodes import RunningNode

CONFIGURATION = """
[node]
name = "loom"

[http]
open_model_control = true

[[model]]
name = "sums"
version = "7"
factory = "plain:SumAndDifference"
max_batch = 4

[[model]]
name = "spare"
factory = "plain:SumAndDifference"
load = false
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def client(node: RunningNode) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{node.port}") as client:
        yield client


def states(client: Any) -> dict[str, str]:
    return {model["name"]: model["state"] for model in client.get_model_repository_index()}


def test_the_server_is_live_and_ready(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()


def test_the_server_tells_its_name_version_and_extensions(client: Any) -> None:
    metadata = client.get_server_metadata()
    assert metadata["name"] == "loom"
    assert metadata["version"] == treadle.__version__
    assert {"binary_tensor_data", "model_repository", "statistics", "schedule_policy"} <= set(
        metadata["extensions"]
    )


@pytest.mark.parametrize("version", ["", "7"])
def test_a_model_is_ready_with_and_without_its_version(client: Any, version: str) -> None:
    assert client.is_model_ready("sums", version)


@pytest.mark.parametrize(("model", "version"), [("spare", ""), ("sums", "8"), ("nobody", "")])
def test_a_model_that_is_not_there_is_not_ready(client: Any, model: str, version: str) -> None:
    assert not client.is_model_ready(model, version)


@pytest.mark.parametrize("version", ["", "7"])
def test_a_model_tells_its_inputs_and_outputs(client: Any, version: str) -> None:
    metadata = client.get_model_metadata("sums", version)
    assert metadata["name"] == "sums"
    assert metadata["versions"] == ["7"]
    assert metadata["inputs"] == [
        {"name": name, "datatype": "FP32", "shape": [-1, 4]} for name in ("a", "b")
    ]
    assert [output["name"] for output in metadata["outputs"]] == ["sum", "difference"]


def test_metadata_of_an_unknown_model_is_an_error(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="'nobody' is not found"):
        client.get_model_metadata("nobody")


def test_the_repository_index_lists_every_model_with_its_state(client: Any) -> None:
    index = {model["name"]: model for model in client.get_model_repository_index()}
    assert index["sums"] == {"name": "sums", "version": "7", "state": "READY", "reason": ""}
    assert index["spare"]["state"] == "UNAVAILABLE"
    assert index["spare"]["reason"]


def test_the_repository_index_lists_only_ready_models_when_asked(node: RunningNode) -> None:
    answer = node.http.post("/v2/repository/index", json={"ready": True})
    assert [model["name"] for model in answer.json()] == ["sums"]


def test_a_model_is_loaded_and_unloaded(client: Any) -> None:
    client.load_model("spare")
    assert states(client) == {"sums": "READY", "spare": "READY"}
    assert client.is_model_ready("spare")
    client.unload_model("spare")
    assert states(client) == {"sums": "READY", "spare": "UNAVAILABLE"}
    assert client.is_server_ready()


def test_loading_an_unknown_model_is_an_error(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="'nobody' is not found"):
        client.load_model("nobody")


def test_loading_with_another_configuration_is_refused(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="config"):
        client.load_model("sums", config='{"max_batch_size": 8}')


def test_statistics_count_requests_rows_and_batches(client: Any) -> None:
    def counts() -> tuple[int, int, int]:
        (statistics,) = client.get_inference_statistics("sums", "7")["model_stats"]
        success = statistics["inference_stats"]["success"]
        return success["count"], statistics["inference_count"], statistics["execution_count"]

    requests, rows, batches = counts()
    inputs = [triton.InferInput(name, [3, 4], "FP32") for name in ("a", "b")]
    for tensor in inputs:
        tensor.set_data_from_numpy(np.zeros((3, 4), np.float32))
    client.infer("sums", inputs)
    assert counts() == (requests + 1, rows + 3, batches + 1)


def test_statistics_of_all_models_come_together(client: Any) -> None:
    statistics = client.get_inference_statistics()["model_stats"]
    assert [model["name"] for model in statistics] == ["sums", "spare"]
