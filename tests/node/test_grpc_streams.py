"""Streams of requests: answers as they end, errors beside them, and clients that go away."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb

from .bodies import infer, result
from .conftest import MakeStream, StartNode
from .nodes import DEADLINE_SECONDS, RunningNode, wait_until

MODELS = """
[grpc]
port = 0

[[model]]
name = "step"
factory = "steps:Step"

[[model]]
name = "quick"
factory = "steps:Step"
share = 0.1

[[model]]
name = "zeros"
factory = "plain:Zeros"
share = 0.1
"""
MOST_OPEN = 64


def request(x: int, model: str = "quick", name: str = "x", shape: tuple[int, ...] = (1, 1)) -> Any:
    message = pb.ModelInferRequest(model_name=model, id=str(x))
    message.inputs.add(name=name, datatype="INT64", shape=shape).contents.int64_contents.append(x)
    return message


def value(response: Any) -> int:
    assert not response.error_message
    return int(np.frombuffer(response.infer_response.raw_output_contents[0], np.int64)[0])


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS)


def test_each_request_is_answered_once_and_that_is_the_last_answer(
    shared: RunningNode, streams: MakeStream
) -> None:
    stream = streams(shared)
    stream.send(*map(request, range(200)))
    stream.end()
    answers = list(stream.call)
    assert sorted(map(value, answers)) == list(range(1, 201))
    for answer in answers:
        assert value(answer) == int(answer.infer_response.id) + 1
        assert answer.infer_response.parameters["triton_final_response"].bool_param


def test_tritons_client_streams(shared: RunningNode) -> None:
    got: queue.Queue[tuple[Any, Any]] = queue.Queue()
    tensor = triton.InferInput("x", [1, 1], "INT64")
    tensor.set_data_from_numpy(np.array([[4]]))
    with triton.InferenceServerClient(shared.grpc) as client:
        client.start_stream(lambda result, error: got.put((result, error)))
        for final in (True, False):
            client.async_stream_infer("quick", [tensor], enable_empty_final_response=final)
            answer, error = got.get(timeout=DEADLINE_SECONDS)
            assert error is None
            assert answer.as_numpy("y").tolist() == [[5]]
        client.async_stream_infer("nobody", [tensor])
        answer, error = got.get(timeout=DEADLINE_SECONDS)
        assert answer is None
        assert "'nobody' is not found" in str(error)
        client.async_stream_infer("quick", [tensor])
        assert got.get(timeout=DEADLINE_SECONDS)[1] is None


async def test_tritons_asynchronous_client_streams(shared: RunningNode) -> None:
    tensor = triton.InferInput("x", [1, 1], "INT64")
    tensor.set_data_from_numpy(np.array([[4]]))

    async def requests() -> Any:
        for n in range(5):
            yield {"model_name": "quick", "inputs": [tensor], "request_id": str(n)}

    async with triton_aio.InferenceServerClient(shared.grpc) as client:
        found = [pair async for pair in client.stream_infer(requests())]
    assert [error for _, error in found] == [None] * 5
    assert {answer.get_response().id for answer, _ in found} == set("01234")


def test_an_error_answers_its_request_and_the_stream_goes_on(
    shared: RunningNode, streams: MakeStream
) -> None:
    stream = streams(shared)
    wrong = request(1)
    wrong.parameters["sequence_id"].int64_param = 1
    stream.send(wrong)
    refused = stream.read()
    assert "'sequence_id'" in refused.error_message
    assert refused.infer_response.id == "1"
    stream.send(request(2))
    assert value(stream.read()) == 3


def test_bytes_that_are_no_request_are_an_error_of_their_own(shared: RunningNode) -> None:
    with grpc.insecure_channel(shared.grpc) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        messages = [b"\xff\xff", request(2).SerializeToString()]
        answers = [pb.ModelStreamInferResponse.FromString(m) for m in call(iter(messages))]
    assert sorted(bool(answer.error_message) for answer in answers) == [False, True]


def test_answers_come_as_they_end(start_node: StartNode, streams: MakeStream) -> None:
    node = start_node(MODELS)
    stream = streams(node)
    with node.shut("step"):
        stream.send(request(1, "step"))
        node.wait_for_run("step: 1")
        stream.send(request(2, "nobody"))
        assert stream.read().infer_response.id == "2"
    assert value(stream.read()) == 2


def test_a_stream_that_is_cut_gives_up_its_places(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    stream = streams(node)
    with node.shut("step"):
        stream.send(*(request(x, "step") for x in range(1, 6)))
        node.wait_for_waiting("step", 4)
        stream.call.cancel()
        wait_until(lambda: node.status()["open_requests"] == 0, "nothing is open")
    assert result(infer(node, "step", 9)) == [10]
    assert "step: 9" in node.ran()
    assert len(node.ran()) == 2
    assert 'outcome="abandoned",priority="normal"} 5.0' in node.http.get("/metrics").text


def test_only_so_many_requests_of_a_stream_are_open(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    stream = streams(node)
    with node.shut("step"):
        stream.send(request(0, "step"))
        node.wait_for_run("step: 0")
        stream.send(*(request(x, "step") for x in range(1, 100)))
        node.wait_for_waiting("step", MOST_OPEN - 1)
        assert node.status()["open_requests"] == MOST_OPEN
    stream.end()
    assert sorted(map(value, stream.call)) == list(range(1, 101))


def test_a_client_that_does_not_read_stops_only_itself(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    stream, count = streams(node), 500_000
    stream.send(*(request(count, "zeros", "count", (1,)) for _ in range(300)))
    # What the connection does not hold waits in the node, as answers of so many requests.
    answered = -1
    while answered < (answered := node.model("zeros")["answered"]) or answered < MOST_OPEN:
        assert result(infer(node, "quick", 1)) == [2]
    assert node.model("zeros")["answered"] < 300
    stream.end()
    assert sum(1 for _ in stream.call) == 300


def test_a_stream_nobody_reads_does_not_keep_the_node(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    stream = streams(node)
    stream.send(*(request(2_000_000, "zeros", "count", (1,)) for _ in range(MOST_OPEN)))
    wait_until(lambda: node.model("zeros")["answered"] >= MOST_OPEN, "the model has run")
    node.signal(signal.SIGTERM)
    assert node.wait_ended() == 0


def test_open_streams_end_with_the_node_and_what_came_is_answered(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    idle, stream = streams(node), streams(node)
    idle.send(request(1))
    assert value(idle.read()) == 2
    with node.shut("step"):
        stream.send(request(1, "step"))
        node.wait_for_run("step: 1")
        node.signal(signal.SIGTERM)
        wait_until(lambda: node.http.get("/v2/health/ready").status_code == 400, "the node drains")
        idle.send(request(2))
        assert "shutting down" in idle.read().error_message
    assert value(stream.read()) == 2
    for each in (idle, stream):
        with pytest.raises(grpc.RpcError, match="shutting down") as caught:
            each.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert node.wait_ended() == 0


READS_A_STREAM = """
import sys

import grpc
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.grpc import service_pb2 as pb


def requests():
    for x in range(5):
        message = pb.ModelInferRequest(model_name="step")
        message.inputs.add(name="x", datatype="INT64", shape=[1, 1])
        message.inputs[0].contents.int64_contents.append(x)
        yield message
    sys.stdin.read()


with grpc.insecure_channel(sys.argv[1]) as channel:
    list(GRPCInferenceServiceStub(channel).ModelStreamInfer(requests()))
"""


def test_a_client_that_is_killed_gives_up_its_places(start_node: StartNode) -> None:
    node = start_node(MODELS)
    command = [sys.executable, "-c", READS_A_STREAM, node.grpc]
    with node.shut("step"), subprocess.Popen(command, stdin=subprocess.PIPE) as client:
        node.wait_for_waiting("step", 4)
        client.kill()
        wait_until(lambda: node.status()["open_requests"] == 0, "nothing is open")
    assert result(infer(node, "step", 9)) == [10]


def test_a_second_signal_ends_open_streams_at_once(
    start_node: StartNode, streams: MakeStream
) -> None:
    node = start_node(MODELS)
    stream = streams(node)
    with node.shut("step"):
        stream.send(request(1, "step"))
        node.wait_for_run("step: 1")
        node.signal(signal.SIGTERM)
        wait_until(lambda: node.http.get("/v2/health/ready").status_code == 400, "the node drains")
        node.signal(signal.SIGTERM)
        assert node.wait_ended() == 143
