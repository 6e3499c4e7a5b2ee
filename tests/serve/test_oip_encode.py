"""Answers: a JSON object, binary tensors behind it, and what JSON cannot say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InvalidRequestError
from treadle.serve.oip import decode_request, encode_response
from treadle.serve.tensors import DTYPES, Array, Tensor, from_array

from .bodies import decode
from .strategies import ARRAYS, NUMERIC, is_finite


def encode(*tensors: Tensor, binary: bool = False, request_id: str = "") -> dict[str, Any]:
    text, blobs = encode_response("m", "7", request_id, list(tensors), [binary] * len(tensors))
    assert len(blobs) == (len(tensors) if binary else 0)
    answer: dict[str, Any] = json.loads(text)
    return answer


def encoded_data(array: Array) -> object:
    return encode(from_array("y", array))["outputs"][0]["data"]


def test_an_answer_names_its_model_and_version() -> None:
    assert encode() == {"model_name": "m", "model_version": "7", "outputs": []}


@pytest.mark.parametrize("final", [False, True])
def test_a_part_of_a_stream_says_whether_it_is_the_last(final: bool) -> None:
    text, _ = encode_response("m", "7", "", [], [], final)
    assert json.loads(text)["parameters"] == {"triton_final_response": final}


def test_the_callers_id_comes_back_if_there_was_one() -> None:
    assert encode(request_id="näme-1")["id"] == "näme-1"
    assert "id" not in encode()


def test_json_outputs_are_flat_and_say_their_shape() -> None:
    array = np.array([[1, 2, 3], [4, 5, 6]], np.int16)
    assert encode(from_array("y", array))["outputs"] == [
        {"name": "y", "datatype": "INT16", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
    ]


# datatype, values, the same in JSON
VALUES = [
    ("BOOL", [True, False], [True, False]),
    ("UINT8", [0, 255], [0, 255]),
    ("UINT64", [0, 2**64 - 1], [0, 2**64 - 1]),
    ("INT64", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    ("FP16", [0.5, -65504.0], [0.5, -65504.0]),
    ("FP32", [0.5, -1.0], [0.5, -1.0]),
    ("FP64", [0.1, 1e300], [0.1, 1e300]),
    ("BF16", [0.5, -256.0], [0.5, -256.0]),
]


@pytest.mark.parametrize(("datatype", "values", "expected"), VALUES)
def test_values(datatype: str, values: list[float], expected: list[float]) -> None:
    data = encoded_data(np.array(values, DTYPES[datatype]))
    assert data == expected
    assert isinstance(data, list)
    assert [type(d) for d in data] == [type(e) for e in expected]


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_what_json_has_no_number_for_is_null(datatype: str) -> None:
    array = np.array([math.nan, 1.0, math.inf, -math.inf], DTYPES[datatype])
    assert encoded_data(array) == [None, 1.0, None, None]


@pytest.mark.parametrize(
    ("datatype", "wire"),
    [("FP16", "017c"), ("FP32", "0100807f"), ("FP64", "010000000000f07f"), ("BF16", "817f")],
)
def test_a_signalling_nan_is_null_too(datatype: str, wire: str) -> None:
    assert encode(Tensor("y", datatype, (1,), bytes.fromhex(wire)))["outputs"][0]["data"] == [None]


@pytest.mark.parametrize("datatype", [*NUMERIC, "BYTES"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_an_output_may_be_empty(datatype: str, shape: tuple[int, ...]) -> None:
    output = encode(from_array("y", np.zeros(shape, DTYPES[datatype])))["outputs"][0]
    assert (output["shape"], output["data"]) == (list(shape), [])


def test_text_is_text() -> None:
    array = np.array([["größer", ""], ["a\0b", '"']], np.object_)
    assert encoded_data(array) == ["größer", "", "a\0b", '"']


def test_what_is_not_text_is_refused_as_json_but_travels_as_binary() -> None:
    array = np.empty(2, np.object_)
    array[:] = [b"fine", b"\xff"]
    with pytest.raises(InvalidRequestError, match=r"output 'y' is not text: .* binary_data"):
        encode(from_array("y", array))
    assert encode(from_array("y", array), binary=True)


def test_binary_outputs_lie_behind_in_order_and_json_ones_between() -> None:
    tensors = [
        from_array("a", np.array([1, 2], np.int16)),
        from_array("b", np.array([0.5])),
        from_array("c", np.array([b"xyz"], np.object_)),
    ]
    text, blobs = encode_response("m", "1", "", tensors, [True, False, True])
    outputs = json.loads(text)["outputs"]
    assert outputs[0]["parameters"] == {"binary_data_size": 4}
    assert "data" not in outputs[0]
    assert outputs[1]["data"] == [0.5]
    assert "parameters" not in outputs[1]
    assert outputs[2]["parameters"] == {"binary_data_size": 7}
    assert [bytes(blob) for blob in blobs] == [b"\x01\0\x02\0", b"\x03\0\0\0xyz"]


def test_any_buffer_may_be_an_output() -> None:
    for kind in (bytes, bytearray, memoryview):
        tensor = Tensor("y", "INT32", (1,), kind(b"\x05\0\0\0"))
        assert encode(tensor)["outputs"][0]["data"] == [5]


def test_data_may_start_at_any_address() -> None:
    """A slice of a larger body need not be aligned to its element type."""
    data = memoryview(b"?" + np.array([1.5, 2.5]).tobytes())[1:]
    assert encode(Tensor("y", "FP64", (2,), data))["outputs"][0]["data"] == [1.5, 2.5]


@given(st.lists(ARRAYS, max_size=3))
def test_any_binary_answer_decodes_to_the_same_tensors(arrays: list[Array]) -> None:
    """The binary form of an output is that of an input."""
    tensors = [from_array(f"t{n}", array) for n, array in enumerate(arrays)]
    text, blobs = encode_response("m", "1", "id", tensors, [True] * len(tensors))
    body = json.dumps({"inputs": json.loads(text)["outputs"]}).encode()
    request = decode_request(body + b"".join(blobs), len(body))
    assert [
        (tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)) for tensor in tensors
    ] == [
        (tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data))
        for tensor in request.inputs
    ]


@given(ARRAYS)
def test_any_json_answer_decodes_to_the_same_tensor(array: Array) -> None:
    if array.dtype.kind in "fV":
        array = np.where(is_finite(array), array, np.zeros((), array.dtype))
    tensor = from_array("t", array)
    try:
        (output,) = encode(tensor)["outputs"]
    except InvalidRequestError:
        assert any(not _is_text(element) for element in array.ravel().tolist())
        return
    (back,) = decode(output).inputs
    assert (back.datatype, back.shape) == (tensor.datatype, tensor.shape)
    if array.dtype.kind in "fV":
        # Minus zero and zero are equal, and both are right.
        assert np.frombuffer(back.data, array.dtype).tolist() == array.ravel().tolist()
    else:
        assert bytes(back.data) == bytes(tensor.data)


def _is_text(element: object) -> bool:
    assert isinstance(element, bytes)
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True
