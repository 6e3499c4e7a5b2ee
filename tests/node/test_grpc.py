"""The node over gRPC: what it tells, who may do what, its health and its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

import treadle

from .bodies import infer, result
from .conftest import MakeHome, StartNode
from .nodes import DEADLINE_SECONDS, Home, RunningNode, wait_until

GRPC = """
[node]
name = "loom"

[grpc]
port = 0
socket = "run/grpc.sock"
"""
STEP = """
[[model]]
name = "step"
factory = "steps:Step"
version = "7"
"""
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
TOKEN = "warp-and-weft"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def request(x: int, **parameters: Any) -> Any:
    """A request to the model that adds one."""
    message = pb.ModelInferRequest(model_name="step", id=str(x))
    message.inputs.add(name="x", datatype="INT64", shape=[1, 1]).contents.int64_contents.append(x)
    for name, value in parameters.items():
        message.parameters[name].int64_param = value
    return message


def value(response: Any) -> int:
    return int(np.frombuffer(response.raw_output_contents[0], np.int64)[0])


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(GRPC + STEP + MODELS)


@pytest.fixture
def channels() -> Iterator[Callable[[str], Any]]:
    """Opens channels that are closed at the end."""
    opened: list[Any] = []

    def open_channel(address: str) -> Any:
        opened.append(grpc.insecure_channel(address))
        return opened[-1]

    yield open_channel
    for channel in opened:
        channel.close()


@pytest.fixture
def client(shared: RunningNode) -> Iterator[Any]:
    with triton.InferenceServerClient(shared.grpc) as client:
        yield client


def socket_of(node: RunningNode) -> str:
    return f"unix:{node.home.folder / 'run' / 'grpc.sock'}"


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


def test_the_socket_is_its_owners(shared: RunningNode) -> None:
    assert (shared.home.folder / "run" / "grpc.sock").stat().st_mode & 0o777 == 0o600


def test_the_address_is_told(shared: RunningNode) -> None:
    assert shared.grpc in shared.output.read_text()
    told = shared.home.treadle("status").stdout
    assert shared.grpc in told
    assert "grpc.sock" in told


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


def test_a_watch_follows_a_model_and_ends_with_the_node(
    start_node: StartNode, channels: Any
) -> None:
    node = start_node(GRPC + STEP)
    health = HealthStub(channels(node.grpc))
    model = health.Watch(health_pb2.HealthCheckRequest(service="step"), timeout=DEADLINE_SECONDS)
    server = health.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_SECONDS)
    assert (next(model).status, next(server).status) == (SERVING, SERVING)
    node.local.post("/v2/repository/models/step/unload")
    assert next(model).status == NOT_SERVING
    node.local.post("/v2/repository/models/step/load")
    assert next(model).status == SERVING
    node.signal(signal.SIGTERM)
    assert (next(model).status, next(server).status) == (NOT_SERVING, NOT_SERVING)
    assert node.wait_ended() == 0


def test_a_full_queue_says_when_to_come_again(
    start_node: StartNode, channels: Any, pool: ThreadPoolExecutor
) -> None:
    node = start_node(GRPC + STEP + "queue_limit = 1\n")
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        waiting = pool.submit(infer, node, "step", 2)
        node.wait_for_waiting("step", 1)
        with pytest.raises(grpc.RpcError, match="is full") as caught:
            stub.ModelInfer(request(3))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        trailing = dict(caught.value.trailing_metadata())
        assert int(trailing["retry-after"]) >= 1
        assert int(trailing["grpc-retry-pushback-ms"]) >= 1
    assert result(running.result()) + result(waiting.result()) == [2, 3]


def test_a_cancelled_call_gives_up_its_place(
    start_node: StartNode, channels: Any, pool: ThreadPoolExecutor
) -> None:
    node = start_node(GRPC + STEP)
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with node.shut("step"):
        running = stub.ModelInfer.future(request(1))
        node.wait_for_run("step: 1")
        waiting = stub.ModelInfer.future(request(2))
        node.wait_for_waiting("step", 1)
        waiting.cancel()
        node.wait_for_waiting("step", 0)
        running.cancel()
        wait_until(lambda: node.status()["open_requests"] == 0, "nothing is open")
    assert result(infer(node, "step", 3)) == [4]
    assert node.ran() == ["step: 1", "step: 3"]
    metrics = node.http.get("/metrics").text
    assert (
        'treadle_requests_total{model="step",outcome="abandoned",priority="normal"} 2.0' in metrics
    )


def test_the_deadline_of_a_call_is_one_in_the_queue(
    start_node: StartNode, channels: Any, pool: ThreadPoolExecutor
) -> None:
    node = start_node(GRPC + STEP)
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request(2), timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        node.wait_for_waiting("step", 0)
    assert result(running.result()) == [2]
    assert result(infer(node, "step", 3)) == [4]
    assert node.ran() == ["step: 1", "step: 3"]


def test_a_model_that_fails_is_an_internal_error(start_node: StartNode, channels: Any) -> None:
    node = start_node(GRPC + STEP + "run_limit_seconds = 0.2\n")
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with node.shut("step"), pytest.raises(grpc.RpcError, match="ran longer") as caught:
        stub.ModelInfer(request(1))
    assert caught.value.code() is grpc.StatusCode.INTERNAL


def test_a_model_that_cannot_be_loaded_says_why(start_node: StartNode) -> None:
    node = start_node(
        GRPC + '[[model]]\nname = "broken"\nfactory = "unloadable:raises"\nload = false\n'
    )
    with triton.InferenceServerClient(socket_of(node)) as owner:
        with pytest.raises(InferenceServerException, match="failed to load 'broken'") as caught:
            owner.load_model("broken")
        assert caught.value.status() == "StatusCode.FAILED_PRECONDITION"


def test_what_was_accepted_is_answered_at_the_end(
    start_node: StartNode, channels: Any, pool: ThreadPoolExecutor
) -> None:
    node = start_node(GRPC + STEP)
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with node.shut("step"):
        running = stub.ModelInfer.future(request(1))
        node.wait_for_run("step: 1")
        node.signal(signal.SIGTERM)
        wait_until(
            lambda: not stub.ServerReady(pb.ServerReadyRequest()).ready, "the node says it drains"
        )
        assert stub.ServerLive(pb.ServerLiveRequest()).live
        with pytest.raises(grpc.RpcError, match="shutting down") as caught:
            stub.ModelInfer(request(2))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "retry-after" in dict(caught.value.trailing_metadata())
    assert value(running.result()) == 2
    assert node.wait_ended() == 0
    assert not (node.home.folder / "run" / "grpc.sock").exists()


def test_without_a_port_or_a_socket_there_is_no_grpc(start_node: StartNode) -> None:
    told = start_node(STEP).status()["grpc"]
    assert (told["port"], told["socket"]) == (None, None)
    assert "grpc.port" in told["reason"]


def test_a_port_may_be_given_on_the_command_line(start_node: StartNode) -> None:
    node = start_node(STEP, "--grpc-port", "0")
    with triton.InferenceServerClient(node.grpc) as client:
        assert client.is_server_ready()


def test_a_port_in_use_ends_the_start_with_the_reason(
    shared: RunningNode, make_home: MakeHome
) -> None:
    home = make_home(f"[grpc]\nport = {shared.grpc.rpartition(':')[2]}\n" + STEP)
    ended = home.treadle("up", str(home.config), "--port", "0")
    assert ended.returncode != 0
    assert "--grpc-port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_two_nodes_do_not_share_a_socket(shared: RunningNode, make_home: MakeHome) -> None:
    path = shared.home.folder / "run" / "grpc.sock"
    home = make_home(f'[grpc]\nsocket = "{path}"\n' + STEP)
    ended = home.treadle("up", str(home.config), "--port", "0")
    assert ended.returncode != 0
    assert f"another node (pid {shared.process.pid})" in ended.stderr


def test_a_missing_library_is_said_and_the_rest_works(start_node: StartNode) -> None:
    def without_grpc(home: Home) -> None:
        (home.folder / "grpc.py").write_text("raise ImportError('not here', name='grpc')\n")

    node = start_node(GRPC + STEP, prepare=without_grpc)
    assert "grpc is not installed: pip install 'treadle[grpc]'" in node.output.read_text()
    assert "grpc is not installed" in node.status()["grpc"]["reason"]
    assert result(infer(node, "step", 1)) == [2]
