"""Inference over gRPC as Triton's own client asks for it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import DataType
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException

from .conftest import StartNode
from .nodes import DEADLINE_SECONDS, RunningNode
from .test_triton_client_inference import CONFIGURATION, VALUES, A, B

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node("[grpc]\nport = 0\nmax_message_bytes = 100000000\n" + CONFIGURATION)


@pytest.fixture
def client(node: RunningNode) -> Iterator[Any]:
    with triton.InferenceServerClient(node.grpc) as client:
        yield client


@pytest.fixture
def stub(node: RunningNode) -> Iterator[Any]:
    with grpc.insecure_channel(node.grpc) as channel:
        yield GRPCInferenceServiceStub(channel)


def an_input(name: str, array: Array, datatype: str = "FP32") -> Any:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array)
    return tensor


def sums_inputs(a: Array = A) -> list[Any]:
    return [an_input("a", a), an_input("b", B)]


@pytest.mark.parametrize("datatype", VALUES)
def test_data_comes_back_as_it_was(client: Any, datatype: str) -> None:
    array = VALUES[datatype]
    try:
        given = an_input("x", array, datatype)
    except InferenceServerException:  # older clients take BF16 as FP32
        assert datatype == "BF16"
        given = an_input("x", array.astype(np.float32), datatype)
    result = client.infer(f"echo-{datatype}", [given])
    output = result.get_output("y")
    assert (output.datatype, list(output.shape)) == (datatype, [1, 3])
    np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("datatype", VALUES)
def test_a_models_configuration_names_its_datatype(client: Any, datatype: str) -> None:
    (told,) = client.get_model_config(f"echo-{datatype}").config.input
    expected = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    assert DataType.Name(told.data_type) == expected


CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_come_back_as_they_were(stub: Any, datatype: str) -> None:
    array = VALUES[datatype]
    request = pb.ModelInferRequest(model_name=f"echo-{datatype}")
    entry = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
    getattr(entry.contents, CONTENTS[datatype]).extend(array.ravel().tolist())
    result = triton.InferResult(stub.ModelInfer(request))
    np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("datatype", ["INT64", "BYTES"])
def test_many_typed_contents_are_read(stub: Any, datatype: str) -> None:
    array: Array = np.arange(100_000, dtype=np.int64).reshape(1, -1)
    if datatype == "BYTES":
        array = array.astype(str).astype(bytes).astype(object)
    request = pb.ModelInferRequest(model_name=f"echo-{datatype}")
    entry = request.inputs.add(name="x", datatype=datatype, shape=array.shape)
    getattr(entry.contents, CONTENTS[datatype]).extend(array.ravel().tolist())
    result = triton.InferResult(stub.ModelInfer(request))
    np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("version", ["", "1"])
def test_a_version_may_be_given(client: Any, version: str) -> None:
    result = client.infer("sums", sums_inputs(), model_version=version)
    assert result.get_response().model_version == "1"


def test_a_batch_of_many_rows_is_answered_row_by_row(client: Any) -> None:
    result = client.infer("sums", sums_inputs())
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_outputs_come_in_the_order_in_which_they_were_asked_for(client: Any) -> None:
    wanted = [triton.InferRequestedOutput("difference"), triton.InferRequestedOutput("sum")]
    result = client.infer("sums", sums_inputs(), outputs=wanted)
    assert [output.name for output in result.get_response().outputs] == ["difference", "sum"]
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_inputs_may_come_in_any_order(client: Any) -> None:
    result = client.infer("sums", sums_inputs()[::-1])
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_the_request_id_comes_back(client: Any) -> None:
    assert client.infer("sums", sums_inputs(), request_id="r-1").get_response().id == "r-1"


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compressed_requests_are_read(client: Any, compression: str) -> None:
    result = client.infer("sums", sums_inputs(), compression_algorithm=compression)
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_priority_and_timeout_are_taken(client: Any) -> None:
    result = client.infer("sums", sums_inputs(), priority=3, timeout=20_000_000)
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_a_timeout_that_no_request_could_meet_is_an_error(client: Any) -> None:
    client.infer("sums", sums_inputs())  # so that the server knows how long the model takes
    with pytest.raises(InferenceServerException, match="time") as caught:
        client.infer("sums", sums_inputs(), timeout=1)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"


def test_requests_at_the_same_time_are_answered_each_with_its_own(client: Any) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for n in range(12):
        client.async_infer(
            "sums",
            sums_inputs(A + n),
            lambda result, error: answers.put(result),
            request_id=str(n),
        )
    got = [answers.get(timeout=DEADLINE_SECONDS) for _ in range(12)]
    for result in got:
        n = int(result.get_response().id)
        np.testing.assert_array_equal(result.as_numpy("sum"), A + n + B)
    assert len({result.get_response().id for result in got}) == 12


async def test_the_asynchronous_client_is_answered(node: RunningNode) -> None:
    async with triton_aio.InferenceServerClient(node.grpc) as client:
        result = await client.infer("sums", sums_inputs())
        np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_a_large_request_and_answer_are_read_and_written(client: Any) -> None:
    array = np.arange(4_000_000, dtype=np.float32).reshape(1, -1)
    result = client.infer("echo-FP32", [an_input("x", array)])
    np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_a_message_over_the_limit_is_refused_and_the_next_one_served(client: Any) -> None:
    array = np.zeros((1, 30_000_000), np.float32)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("echo-FP32", [an_input("x", array)])
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    client.infer("sums", sums_inputs())


WRONG: list[tuple[str, str, list[Any], dict[str, Any], str, str]] = [
    ("unknown model", "nobody", sums_inputs(), {}, "NOT_FOUND", "'nobody' is not found"),
    ("unknown version", "sums", sums_inputs(), {"model_version": "9"}, "NOT_FOUND", "version 9"),
    ("missing input", "sums", [an_input("a", A)], {}, "INVALID_ARGUMENT", "Missing: b"),
    (
        "other datatype",
        "sums",
        [an_input("a", A), an_input("b", B.astype(np.float64), "FP64")],
        {},
        "INVALID_ARGUMENT",
        "expects 'FP32'",
    ),
    ("other shape", "sums", sums_inputs(A[:, :2]), {}, "INVALID_ARGUMENT", "unexpected shape"),
    (
        "unknown output",
        "sums",
        sums_inputs(),
        {"outputs": [triton.InferRequestedOutput("product")]},
        "INVALID_ARGUMENT",
        "'product'",
    ),
    ("a sequence", "sums", sums_inputs(), {"sequence_id": 5}, "INVALID_ARGUMENT", "'sequence_"),
    (
        "classes",
        "sums",
        sums_inputs(),
        {"outputs": [triton.InferRequestedOutput("sum", class_count=2)]},
        "INVALID_ARGUMENT",
        "'classification'",
    ),
]


@pytest.mark.parametrize(
    ("model", "inputs", "more", "status", "said"),
    [pytest.param(*case[1:], id=case[0]) for case in WRONG],
)
def test_a_wrong_request_is_refused_with_the_reason(
    client: Any, model: str, inputs: list[Any], more: dict[str, Any], status: str, said: str
) -> None:
    with pytest.raises(InferenceServerException, match=said) as caught:
        client.infer(model, inputs, **more)
    assert caught.value.status() == f"StatusCode.{status}"
    client.infer("sums", sums_inputs())


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "RepositoryIndex"])
def test_bytes_that_are_no_message_are_refused(node: RunningNode, method: str) -> None:
    with grpc.insecure_channel(node.grpc) as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
