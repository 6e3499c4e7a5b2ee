"""What the node tells over gRPC: itself, its models, their health."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

import treadle

from .bodies import infer, result
from .conftest import StartNode
from .grpc_clients import (
    GRPC,
    NOT_SERVING,
    SERVICE_UNKNOWN,
    SERVING,
    STEP,
    request,
    value,
)
from .nodes import DEADLINE_SECONDS, RunningNode

MODELS = """
[[model]]
name = "spare"
factory = "steps:Step"
load = false

[[model]]
name = "batched"
factory = "plain:SumAndDifference"
max_batch = 8
max_delay_seconds = 0.001
"""


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(GRPC + STEP + MODELS)


@pytest.fixture
def client(shared: RunningNode) -> Iterator[Any]:
    with triton.InferenceServerClient(shared.grpc) as client:
        yield client


def test_the_server_is_live_and_ready(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()


def test_the_server_tells_what_http_tells(shared: RunningNode, client: Any) -> None:
    metadata = client.get_server_metadata(as_json=True)
    assert (metadata["name"], metadata["version"]) == ("loom", treadle.__version__)
    assert metadata == shared.http.get("/v2").json()


def test_a_model_tells_what_http_tells(shared: RunningNode, client: Any) -> None:
    told = client.get_model_metadata("step")
    http = shared.http.get("/v2/models/step").json()
    assert (told.name, list(told.versions), told.platform) == ("step", ["7"], http["platform"])
    assert [(t.name, t.datatype, list(t.shape)) for t in told.inputs] == [("x", "INT64", [-1, 1])]
    assert [(t.name, t.datatype, list(t.shape)) for t in told.outputs] == [("y", "INT64", [-1, 1])]


def test_a_models_configuration_is_told(shared: RunningNode, client: Any) -> None:
    config = client.get_model_config("batched").config
    assert (config.name, config.platform, config.max_batch_size) == ("batched", "python", 8)
    assert [list(tensor.dims) for tensor in config.input] == [[4], [4]]
    assert config.dynamic_batching.max_queue_delay_microseconds == 1000
    assert client.get_model_config("step").config.max_batch_size == 0
    http = shared.http.get("/v2/models/batched/config").json()
    assert http["input"][0] == {"name": "a", "data_type": "TYPE_FP32", "dims": [4]}


@pytest.mark.parametrize("version", ["", "7"])
def test_a_model_is_ready_with_and_without_its_version(client: Any, version: str) -> None:
    assert client.is_model_ready("step", version)


@pytest.mark.parametrize(("model", "version"), [("spare", ""), ("step", "8"), ("nobody", "")])
def test_a_model_that_is_not_there_is_not_ready(client: Any, model: str, version: str) -> None:
    assert not client.is_model_ready(model, version)


def test_requests_are_counted_as_over_http(shared: RunningNode, client: Any, channels: Any) -> None:
    stub = GRPCInferenceServiceStub(channels(shared.grpc))

    def counted() -> tuple[int, int]:
        stats = client.get_inference_statistics("step").model_stats[0]
        return stats.inference_count, stats.inference_stats.success.count

    before = counted()
    assert value(stub.ModelInfer(request(1))) == 2
    assert result(infer(shared, "step", 1)) == [2]
    assert counted() == (before[0] + 2, before[1] + 2)
    metrics = shared.http.get("/metrics").text
    assert 'treadle_requests_total{model="step",outcome="ok",priority="normal"}' in metrics
    assert {stats.name for stats in client.get_inference_statistics().model_stats} == {
        "step",
        "spare",
        "batched",
    }


def test_the_repository_is_told(client: Any) -> None:
    states = {m.name: (m.state, m.reason) for m in client.get_model_repository_index().models}
    assert states["step"] == ("READY", "")
    assert states["spare"] == ("UNAVAILABLE", "not loaded")


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
def test_an_unknown_model_is_not_found(shared: RunningNode, channels: Any, method: str) -> None:
    stub = GRPCInferenceServiceStub(channels(shared.grpc))
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stub, method)(getattr(pb, f"{method}Request")(name="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_model_that_is_not_loaded_is_unavailable(shared: RunningNode, channels: Any) -> None:
    stub = GRPCInferenceServiceStub(channels(shared.grpc))
    asked = request(1)
    asked.model_name = "spare"
    with pytest.raises(grpc.RpcError, match="spare") as caught:
        stub.ModelInfer(asked)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "method", ["CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "TraceSetting", "LogSettings"]
)
def test_what_is_not_offered_says_so(shared: RunningNode, channels: Any, method: str) -> None:
    stub = GRPCInferenceServiceStub(channels(shared.grpc))
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stub, method)(getattr(pb, f"{method}Request")())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == f"{method} is not offered by this server"


def test_the_address_is_told(shared: RunningNode) -> None:
    assert shared.grpc in shared.output.read_text()
    told = shared.home.treadle("status").stdout
    assert shared.grpc in told
    assert "grpc.sock" in told


@pytest.mark.parametrize(
    ("service", "status"),
    [
        ("", SERVING),
        ("inference.GRPCInferenceService", SERVING),
        ("step", SERVING),
        ("spare", NOT_SERVING),
    ],
)
def test_health_of_the_server_and_of_each_model(
    shared: RunningNode, channels: Any, service: str, status: int
) -> None:
    health = HealthStub(channels(shared.grpc))
    assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == status
    assert next(health.Watch(health_pb2.HealthCheckRequest(service=service))).status == status


def test_health_of_what_is_not_there(shared: RunningNode, channels: Any) -> None:
    health, asked = HealthStub(channels(shared.grpc)), health_pb2.HealthCheckRequest(service="x")
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(asked)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert next(health.Watch(asked)).status == SERVICE_UNKNOWN


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(1000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
    ],
    ids=["another protocol", "zeros", "frames that are none"],
)
def test_a_connection_that_speaks_nonsense_harms_nobody(
    shared: RunningNode, channels: Any, junk: bytes
) -> None:
    host, _, port = shared.grpc.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as connection:
        connection.sendall(junk)
        while connection.recv(1 << 16):
            pass
    assert value(GRPCInferenceServiceStub(channels(shared.grpc)).ModelInfer(request(1))) == 2
