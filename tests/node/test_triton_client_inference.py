"""Inference as Triton's own client asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from .conftest import StartNode
from .nodes import RunningNode

Array = npt.NDArray[Any]

VALUES: dict[str, Array] = {
    "BOOL": np.array([[True, False, True]]),
    **{
        name: np.array([[np.iinfo(name.lower()).min, 0, np.iinfo(name.lower()).max]], name.lower())
        for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
    },
    **{
        name: np.array([[0.1, -2.5, 1e4]], kind)
        for name, kind in {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}.items()
    },
    "BYTES": np.array([[b"", "Köper\n".encode(), b"a" * 1000]], object),
    "BF16": np.array([[0.5, -2, 1]], ml_dtypes.bfloat16),
}
BY_JSON = [name for name in VALUES if name not in ("FP16", "BF16")]  # the client knows no others

CONFIGURATION = """
[[model]]
name = "sums"
factory = "plain:SumAndDifference"
max_batch = 8
worker = "all"
""" + "".join(
    f"""
[[model]]
name = "echo-{datatype}"
factory = "plain:Echo"
parameters = {{ datatype = "{datatype}" }}
max_batch = 4
worker = "all"
"""
    for datatype in VALUES
)


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def client(node: RunningNode) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{node.port}", concurrency=4) as client:
        yield client


def an_input(name: str, array: Array, datatype: str = "FP32", *, binary: bool = True) -> Any:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.full((2, 4), 0.5, np.float32)


def sums_inputs(*, binary: bool = True) -> list[Any]:
    return [an_input("a", A, binary=binary), an_input("b", B, binary=binary)]


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary-out", "json-out"])
@pytest.mark.parametrize("datatype", VALUES)
def test_binary_data_comes_back_as_it_was(client: Any, datatype: str, binary_out: bool) -> None:
    array = VALUES[datatype]
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    try:
        given = an_input("x", array, datatype)
    except triton.InferenceServerException:  # older clients take BF16 as FP32
        assert datatype == "BF16"
        given = an_input("x", array.astype(np.float32), datatype)
    result = client.infer(f"echo-{datatype}", [given], outputs=wanted)
    output = result.get_output("y")
    assert output["datatype"] == datatype
    assert output["shape"] == [1, 3]
    assert ("data" in output) is not binary_out
    if datatype == "BYTES" and not binary_out:
        array = np.array([[item.decode() for item in row] for row in array], object)
    if datatype == "BF16" and not binary_out:
        np.testing.assert_array_equal(np.array(output["data"]).reshape(1, 3), array)
    else:
        np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("binary_out", [True, False], ids=["binary-out", "json-out"])
@pytest.mark.parametrize("datatype", BY_JSON)
def test_json_data_comes_back_as_it_was(client: Any, datatype: str, binary_out: bool) -> None:
    array = VALUES[datatype]
    if datatype == "FP64":
        array = array.astype(np.float32).astype(np.float64)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    given = an_input("x", array, datatype, binary=False)
    result = client.infer(f"echo-{datatype}", [given], outputs=wanted)
    if datatype == "BYTES" and not binary_out:
        array = np.array([[item.decode() for item in row] for row in array], object)
    np.testing.assert_array_equal(result.as_numpy("y"), array)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_is_taken_and_given_as_json(node: RunningNode, datatype: str) -> None:
    given = {"name": "x", "datatype": datatype, "shape": [1, 2], "data": [0.5, -2]}
    answer = node.http.post(f"/v2/models/echo-{datatype}/infer", json={"inputs": [given]})
    assert answer.json()["outputs"][0]["data"] == [0.5, -2]


@pytest.mark.parametrize("version", ["", "1"])
def test_a_version_may_be_given(client: Any, version: str) -> None:
    result = client.infer("sums", sums_inputs(), model_version=version)
    assert result.get_response()["model_version"] == "1"


def test_a_batch_of_many_rows_is_answered_row_by_row(client: Any) -> None:
    result = client.infer("sums", sums_inputs())
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_only_the_outputs_that_were_asked_for_are_sent(client: Any) -> None:
    wanted = [triton.InferRequestedOutput("difference")]
    result = client.infer("sums", sums_inputs(), outputs=wanted)
    assert [output["name"] for output in result.get_response()["outputs"]] == ["difference"]
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_outputs_come_in_the_order_and_form_in_which_they_were_asked_for(client: Any) -> None:
    wanted = [
        triton.InferRequestedOutput("difference", binary_data=False),
        triton.InferRequestedOutput("sum", binary_data=True),
    ]
    result = client.infer("sums", sums_inputs(), outputs=wanted)
    assert [output["name"] for output in result.get_response()["outputs"]] == ["difference", "sum"]
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_json_and_binary_inputs_mix(client: Any) -> None:
    inputs = [an_input("a", A, binary=False), an_input("b", B, binary=True)]
    np.testing.assert_array_equal(client.infer("sums", inputs).as_numpy("sum"), A + B)


def test_inputs_may_come_in_any_order(client: Any) -> None:
    result = client.infer("sums", sums_inputs()[::-1])
    np.testing.assert_array_equal(result.as_numpy("difference"), A - B)


def test_the_request_id_comes_back(client: Any) -> None:
    assert client.infer("sums", sums_inputs(), request_id="r-1").get_response()["id"] == "r-1"


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_compressed_requests_are_read(client: Any, compression: str, binary: bool) -> None:
    result = client.infer(
        "sums", sums_inputs(binary=binary), request_compression_algorithm=compression
    )
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_a_client_that_would_take_a_compressed_answer_is_answered(
    client: Any, compression: str
) -> None:
    result = client.infer("sums", sums_inputs(), response_compression_algorithm=compression)
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_priority_and_timeout_are_taken(client: Any) -> None:
    result = client.infer("sums", sums_inputs(), priority=3, timeout=20_000_000)
    np.testing.assert_array_equal(result.as_numpy("sum"), A + B)


def test_a_timeout_in_microseconds_that_no_request_could_meet_is_an_error(client: Any) -> None:
    client.infer("sums", sums_inputs())  # so that the server knows how long the model takes
    with pytest.raises(InferenceServerException, match="time"):
        client.infer("sums", sums_inputs(), timeout=1)


def test_asynchronous_requests_are_answered_each_with_its_own(client: Any) -> None:
    pending = [
        client.async_infer("sums", [an_input("a", A + n), an_input("b", B)]) for n in range(12)
    ]
    for n, request in enumerate(pending):
        np.testing.assert_array_equal(request.get_result().as_numpy("sum"), A + n + B)


def test_an_unknown_output_is_an_error(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="'product'"):
        client.infer("sums", sums_inputs(), outputs=[triton.InferRequestedOutput("product")])


def test_a_raw_binary_request_is_the_bare_data_of_the_only_input(node: RunningNode) -> None:
    array = np.array([[1, 2, 3]], np.int32)
    answer = node.http.post(
        "/v2/models/echo-INT32/infer",
        content=array.tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert answer.status_code == 200, answer.text
    header = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.content[header:] == array.tobytes()
    assert b'"shape":[1,3]' in answer.content[:header]


def test_a_raw_binary_request_for_text_is_one_element(node: RunningNode) -> None:
    answer = node.http.post(
        "/v2/models/echo-BYTES/infer",
        content=b"weave",
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert answer.content.endswith(b"\x05\0\0\0weave")


def test_a_raw_binary_request_for_two_inputs_is_an_error(node: RunningNode) -> None:
    answer = node.http.post(
        "/v2/models/sums/infer",
        content=A.tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert answer.status_code == 400
    assert "one input" in answer.json()["error"]


def test_bfloat16_keeps_its_bits(node: RunningNode) -> None:
    array = np.array([[1.1, -3e38, 1e-30]], ml_dtypes.bfloat16)
    answer = node.http.post(
        "/v2/models/echo-BF16/infer",
        content=array.tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert answer.content.endswith(array.tobytes())


def test_a_large_json_request_and_answer_are_read_and_written(client: Any) -> None:
    array = np.arange(200_000, dtype=np.int64).reshape(1, -1)
    given = an_input("x", array, "INT64", binary=False)
    wanted = [triton.InferRequestedOutput("y", binary_data=False)]
    result = client.infer("echo-INT64", [given], outputs=wanted)
    np.testing.assert_array_equal(result.as_numpy("y"), array)


def test_a_large_binary_request_and_answer_are_read_and_written(client: Any) -> None:
    array = np.arange(4_000_000, dtype=np.float32).reshape(1, -1)
    result = client.infer("echo-FP32", [an_input("x", array, "FP32")])
    np.testing.assert_array_equal(result.as_numpy("y"), array)
