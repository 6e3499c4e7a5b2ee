"""Queues, deadlines, failures, starts and ends, as a gRPC client sees them."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from .bodies import infer, result
from .conftest import MakeHome, StartNode
from .grpc_clients import (
    GRPC,
    NOT_SERVING,
    SERVING,
    STEP,
    request,
    socket_of,
    value,
)
from .nodes import DEADLINE_SECONDS, Home, RunningNode, wait_until


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(GRPC + STEP)


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


@pytest.mark.parametrize("fault", ["raises at length", "raises what is no text"])
def test_a_reason_fits_into_what_clients_take(
    start_node: StartNode, channels: Any, fault: str
) -> None:
    node = start_node(
        GRPC + '[[model]]\nname = "step"\nfactory = "faulty:Faulty"\n'
        f'parameters = {{ fault = "{fault}" }}\n'
    )
    stub = GRPCInferenceServiceStub(channels(node.grpc))
    with pytest.raises(grpc.RpcError, match="13 is unlucky") as caught:
        stub.ModelInfer(request(13))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    (answer,) = stub.ModelStreamInfer(iter([request(13)]))
    assert "13 is unlucky" in answer.error_message


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
