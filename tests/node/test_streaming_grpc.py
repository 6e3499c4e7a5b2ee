"""Answers in parts over gRPC streams."""

from __future__ import annotations

import queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from .conftest import MakeStream, StartNode
from .nodes import DEADLINE_SECONDS, RunningNode

MODELS = """
[grpc]
port = 0

[[model]]
name = "spell"
factory = "speaking:Spells"
streaming = true
share = 0.1

[[model]]
name = "both"
factory = "speaking:Spells"
streaming = true
replicas = 2
share = 0.1

[[model]]
name = "unheard"
factory = "speaking:Spells"
parameters = { times = 300000 }
streaming = true
share = 0.1
stream_stall_seconds = 0.2
"""
FINAL = "triton_final_response"
EMPTY_FINAL = "triton_enable_empty_final_response"


def request(text: str, model: str = "spell", *, name: str = "", end: bool = False) -> Any:
    message = pb.ModelInferRequest(model_name=model, id=name or text)
    message.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
        text.encode()
    )
    if end:
        message.parameters[EMPTY_FINAL].bool_param = True
    return message


def letter(answer: Any) -> str:
    assert not answer.error_message
    (data,) = answer.infer_response.raw_output_contents
    return str(data[4:].decode())


def is_final(answer: Any) -> bool:
    return bool(answer.infer_response.parameters[FINAL].bool_param)


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS)


def test_each_part_is_an_answer_and_none_of_them_final(
    shared: RunningNode, streams: MakeStream
) -> None:
    stream = streams(shared)
    stream.send(request("hello"))
    stream.end()
    answers = list(stream.call)
    assert "".join(map(letter, answers)) == "hello"
    assert not any(map(is_final, answers))
    assert {answer.infer_response.id for answer in answers} == {"hello"}


def test_who_asks_for_it_is_told_the_end(shared: RunningNode, streams: MakeStream) -> None:
    stream = streams(shared)
    stream.send(request("hello", end=True))
    stream.end()
    *answers, last = list(stream.call)
    assert "".join(map(letter, answers)) == "hello"
    assert [is_final(answer) for answer in (*answers, last)] == [False] * 5 + [True]
    assert (last.infer_response.id, len(last.infer_response.outputs)) == ("hello", 0)


def test_tritons_client_takes_the_parts(shared: RunningNode) -> None:
    got: queue.Queue[tuple[Any, Any]] = queue.Queue()
    tensor = triton.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"abc"], np.object_))
    with triton.InferenceServerClient(shared.grpc) as client:
        assert client.get_model_config("spell").config.model_transaction_policy.decoupled
        client.start_stream(lambda result, error: got.put((result, error)))
        client.async_stream_infer("spell", [tensor], enable_empty_final_response=True)
        letters = b""
        while True:
            answer, error = got.get(timeout=DEADLINE_SECONDS)
            assert error is None
            if answer.get_response().parameters[FINAL].bool_param:
                break
            letters += answer.as_numpy("letter")[0]
    assert letters == b"abc"


def test_many_answers_share_a_stream(shared: RunningNode, streams: MakeStream) -> None:
    stream = streams(shared)
    texts = [f"this is number {n}" for n in range(60)]
    stream.send(*(request(text, "both") for text in texts))
    stream.end()
    said = dict.fromkeys(texts, "")
    for answer in stream.call:
        said[answer.infer_response.id] += letter(answer)
    assert list(said) == list(said.values()) == texts


def test_a_single_call_is_told_how_to_ask(shared: RunningNode) -> None:
    with grpc.insecure_channel(shared.grpc) as channel:
        with pytest.raises(grpc.RpcError, match="ModelStreamInfer") as caught:
            GRPCInferenceServiceStub(channel).ModelInfer(request("a"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("last", "why"), [("!", "cannot say this"), ("#", "SIGKILL")])
def test_one_that_breaks_off_leaves_the_others(
    shared: RunningNode, streams: MakeStream, last: str, why: str
) -> None:
    stream = streams(shared)
    with shared.shut("both") as gate:
        stream.send(request("x_y", "both"))
        assert letter(stream.read()) == "x"
        stream.send(request("ab" + last))
        answer = stream.read()
        while not answer.error_message:
            assert letter(answer) in {"a", "b"}
            answer = stream.read()
        assert why in answer.error_message
        assert answer.infer_response.id == "ab" + last
        assert is_final(answer)
        gate.unlink()
        assert [letter(stream.read()) for _ in "_y"] == ["_", "y"]
    stream.send(request("c"))
    assert letter(stream.read()) == "c"


def test_a_stream_that_is_cancelled_ends_its_generators(
    shared: RunningNode, streams: MakeStream
) -> None:
    stream = streams(shared)
    stream.send(request("*"))
    assert letter(stream.read()) == "*"
    stream.call.cancel()
    shared.wait_for_run("spell: closed")


def test_a_client_that_never_reads_ends_the_generator(
    shared: RunningNode, streams: MakeStream
) -> None:
    stream, other = streams(shared), streams(shared)
    stream.send(request("*", "unheard"))
    shared.wait_for_run("unheard: *")
    other.send(request("", "unheard", name="other", end=True))
    assert is_final(other.read())
    assert "unheard: closed" in shared.ran()
    answer = stream.read()
    while not answer.error_message:
        answer = stream.read()
    assert "no part of the answer was taken for 0.2 s" in answer.error_message
