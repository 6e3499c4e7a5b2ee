"""Who may do what over gRPC: with the token, without it, and over the socket."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from .conftest import StartNode
from .grpc_clients import (
    GRPC,
    SERVING,
    STEP,
    request,
    socket_of,
    value,
)
from .nodes import RunningNode, wait_until

SPARE = """
[[model]]
name = "spare"
factory = "steps:Step"
load = false
"""


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(GRPC + STEP + SPARE)


TOKEN = "warp-and-weft"


def test_models_are_loaded_and_unloaded_over_the_socket_only(shared: RunningNode) -> None:
    with triton.InferenceServerClient(shared.grpc) as anybody:
        for action in (anybody.load_model, anybody.unload_model):
            with pytest.raises(InferenceServerException, match="open_model_control") as caught:
                action("step")
            assert caught.value.status() == "StatusCode.PERMISSION_DENIED"
    with triton.InferenceServerClient(socket_of(shared)) as owner:
        owner.load_model("spare")
        assert owner.is_model_ready("spare")
        owner.unload_model("spare")
        assert not owner.is_model_ready("spare")
        with pytest.raises(InferenceServerException, match="config"):
            owner.load_model("spare", config="{}")
        with pytest.raises(InferenceServerException, match="nobody"):
            owner.load_model("nobody")


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_is_loaded_to_the_end_whoever_waits(start_node: StartNode, fails: bool) -> None:
    node = start_node(GRPC + STEP + "load_limit_seconds = 3\n")
    with triton.InferenceServerClient(socket_of(node)) as owner:
        owner.unload_model("step")
        with node.shut("load-step"):
            with pytest.raises(InferenceServerException) as caught:
                owner.load_model("step", client_timeout=0.2)
            assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
            assert node.model("step")["state"] == "LOADING"
            if fails:
                wait_until(lambda: "longer than 3 s" in node.model("step")["reason"], "it gives up")
        if not fails:
            wait_until(lambda: owner.is_model_ready("step"), "the model is loaded")


def test_the_socket_is_its_owners(shared: RunningNode) -> None:
    assert (shared.home.folder / "run" / "grpc.sock").stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def guarded(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(GRPC + STEP, environment={"TREADLE_HTTP_TOKEN": TOKEN})


CALLS: list[tuple[str, Any]] = [
    ("ModelInfer", request(1)),
    ("ServerMetadata", pb.ServerMetadataRequest()),
    ("ModelReady", pb.ModelReadyRequest(name="step")),
    ("ModelMetadata", pb.ModelMetadataRequest(name="step")),
    ("ModelConfig", pb.ModelConfigRequest(name="step")),
    ("ModelStatistics", pb.ModelStatisticsRequest(name="step")),
    ("RepositoryIndex", pb.RepositoryIndexRequest()),
    ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="step")),
    ("TraceSetting", pb.TraceSettingRequest()),
]


@pytest.mark.parametrize(("method", "message"), CALLS, ids=[method for method, _ in CALLS])
@pytest.mark.parametrize("given", [None, "Bearer", f"Bearer {TOKEN}x", TOKEN])
def test_no_method_is_open_without_the_token(
    guarded: RunningNode, channels: Any, method: str, message: Any, given: str | None
) -> None:
    stub = GRPCInferenceServiceStub(channels(guarded.grpc))
    metadata = [] if given is None else [("authorization", given)]
    with pytest.raises(grpc.RpcError, match="Bearer") as caught:
        getattr(stub, method)(message, metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert TOKEN not in caught.value.details()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_the_token_opens_everything(guarded: RunningNode, channels: Any, scheme: str) -> None:
    stub = GRPCInferenceServiceStub(channels(guarded.grpc))
    metadata = [("authorization", f"{scheme} {TOKEN}")]
    assert value(stub.ModelInfer(request(1), metadata=metadata)) == 2
    stub.RepositoryModelLoad(CALLS[7][1], metadata=metadata)


def test_a_stream_needs_the_token_too(guarded: RunningNode, channels: Any) -> None:
    stub = GRPCInferenceServiceStub(channels(guarded.grpc))
    with pytest.raises(grpc.RpcError, match="Bearer"):
        list(stub.ModelStreamInfer(iter([request(1)])))


def test_the_socket_needs_no_token(guarded: RunningNode, channels: Any) -> None:
    stub = GRPCInferenceServiceStub(channels(socket_of(guarded)))
    assert value(stub.ModelInfer(request(1))) == 2


def test_health_without_the_token_is_the_servers_only(guarded: RunningNode, channels: Any) -> None:
    channel = channels(guarded.grpc)
    health, stub = HealthStub(channel), GRPCInferenceServiceStub(channel)
    assert health.Check(health_pb2.HealthCheckRequest()).status == SERVING
    assert stub.ServerLive(pb.ServerLiveRequest()).live
    assert stub.ServerReady(pb.ServerReadyRequest()).ready
    for model in ("step", "nobody"):
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(service=model))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
