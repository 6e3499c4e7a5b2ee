"""Requests that are right, and what they mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treadle.errors import InvalidRequestError
from treadle.serve.oip import decode_request
from treadle.serve.request import InferenceRequest, RequestedOutput
from treadle.serve.tensors import DTYPES, pack_bytes, to_array
from treadle.serve.validate import MAX_RANK
from treadle.types import Priority

from .bodies import assert_sound, decode, decode_binary, one_input, request_json, values_of
from .strategies import NUMERIC

# datatype, four elements as JSON, the same as numpy has them
ELEMENTS = [
    ("BOOL", [True, False, False, True], [True, False, False, True]),
    ("UINT8", [0, 1, 254, 255], [0, 1, 254, 255]),
    ("UINT16", [0, 1, 2, 65535], [0, 1, 2, 65535]),
    ("UINT32", [0, 1, 2, 2**32 - 1], [0, 1, 2, 2**32 - 1]),
    ("UINT64", [0, 1, 2, 2**64 - 1], [0, 1, 2, 2**64 - 1]),
    ("INT8", [-128, -1, 0, 127], [-128, -1, 0, 127]),
    ("INT16", [-(2**15), -1, 0, 2**15 - 1], [-(2**15), -1, 0, 2**15 - 1]),
    ("INT32", [-(2**31), -1, 0, 2**31 - 1], [-(2**31), -1, 0, 2**31 - 1]),
    ("INT64", [-(2**63), -1, 0, 2**63 - 1], [-(2**63), -1, 0, 2**63 - 1]),
    ("FP16", [0, -1.5, 0.5, 65504], [0.0, -1.5, 0.5, 65504.0]),
    ("FP32", [0, -1.5, 0.5, 1e30], [0.0, -1.5, 0.5, float(np.float32(1e30))]),
    ("FP64", [0, -1.5, 0.1, 1e300], [0.0, -1.5, 0.1, 1e300]),
    ("BF16", [0, -1.5, 0.5, 256], [0.0, -1.5, 0.5, 256.0]),
    ("BYTES", ["", "a", "größer", "a\0b"], [b"", b"a", "größer".encode(), b"a\0b"]),
]


def nest(flat: list[object], shape: list[int]) -> object:
    if len(shape) == 1:
        return flat
    step = len(flat) // shape[0]
    return [nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


@pytest.mark.parametrize("shape", [[4], [2, 2], [1, 4], [4, 1], [2, 1, 2], [1, 1, 1, 4]])
@pytest.mark.parametrize(("datatype", "elements", "expected"), ELEMENTS)
def test_json_data_may_be_flat_or_nested(
    datatype: str, elements: list[object], expected: list[object], shape: list[int]
) -> None:
    array = np.empty(4, DTYPES[datatype])
    array[:] = expected
    for data in (elements, nest(elements, shape)):
        request = decode(one_input(datatype=datatype, shape=shape, data=data))
        assert_sound(request)
        assert values_of(request) == [array.reshape(shape).tolist()]


@pytest.mark.parametrize("datatype", [name for name, _, _ in ELEMENTS])
@pytest.mark.parametrize(("shape", "data"), [([0], []), ([0, 3], []), ([3, 0], [[], [], []])])
def test_a_tensor_may_be_empty(datatype: str, shape: list[int], data: list[object]) -> None:
    request = decode(one_input(datatype=datatype, shape=shape, data=data))
    assert_sound(request)
    assert len(request.inputs[0].data) == 0


@pytest.mark.parametrize("shape", [(2, 0, 3), (1, 2, 0), (2, 0, 0), (1, 0)])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_an_empty_tensor_may_be_nested_as_numpy_nests_it(
    datatype: str, shape: tuple[int, ...]
) -> None:
    nested = np.zeros(shape).tolist()
    assert_sound(decode(one_input(datatype=datatype, shape=list(shape), data=nested)))


def test_a_scalar_has_one_element_and_no_dimensions() -> None:
    request = decode(one_input(shape=[], data=[7.5]))
    assert request.inputs[0].shape == ()
    assert values_of(request) == [7.5]


def test_a_tensor_may_have_many_dimensions() -> None:
    shape = [1] * MAX_RANK
    assert decode(one_input(shape=shape, data=[1.0])).inputs[0].shape == tuple(shape)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "BF16"])
def test_a_number_too_large_for_its_float_becomes_infinite(datatype: str) -> None:
    for shape, data in (([2], [1e300, -1e300]), ([2, 1], [[1e300], [-1e300]])):
        request = decode(one_input(datatype=datatype, shape=shape, data=data))
        assert to_array(request.inputs[0]).ravel().tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("space", [b"", b" ", b"\n\t\r "])
def test_space_around_data_means_nothing(space: bytes) -> None:
    parts = (
        b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1,2],"data":',
        b"[",
        b"[1,2]",
        b"]",
    )
    assert values_of(decode_request(space.join(parts) + space + b"}]}", None)) == [[[1, 2]]]


@pytest.mark.parametrize("datatype", NUMERIC)
def test_binary_data(datatype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[datatype])
    request = decode_binary(({"datatype": datatype, "shape": [2, 3]}, array.tobytes()))
    assert_sound(request)
    assert values_of(request) == [array.tolist()]


def test_binary_text() -> None:
    data = pack_bytes([b"", b"\xff\x00", b"x" * 1000])
    request = decode_binary(({"datatype": "BYTES", "shape": [3, 1]}, data))
    assert_sound(request)
    assert values_of(request) == [[[b""], [b"\xff\x00"], [b"x" * 1000]]]


def test_inputs_keep_their_order_and_their_own_data() -> None:
    first, second = np.array([1, 2], np.int16), np.array([3.5], np.float64)
    request = decode_binary(
        ({"name": "b", "datatype": "INT16"}, first.tobytes()),
        ({"name": "a", "datatype": "FP64", "shape": [1]}, second.tobytes()),
        ({"name": "c", "datatype": "UINT8", "shape": [0]}, b""),
    )
    assert [tensor.name for tensor in request.inputs] == ["b", "a", "c"]
    assert values_of(request) == [[1, 2], [3.5], []]


def test_json_and_binary_inputs_go_together() -> None:
    binary = one_input(name="b", datatype="INT8", data=None) | {
        "parameters": {"binary_data_size": 2}
    }
    header = request_json(one_input(name="a"), binary, one_input(name="c", data=[3, 4]))
    request = decode_request(header + b"\x05\xfb", len(header))
    assert values_of(request) == [[1.5, 2.5], [5, -5], [3.0, 4.0]]


def test_a_body_may_be_any_kind_of_buffer() -> None:
    body = request_json(one_input())
    for kind in (bytes, bytearray, memoryview):
        assert values_of(decode_request(kind(body), None)) == [[1.5, 2.5]]
        assert values_of(decode_request(kind(body), len(body))) == [[1.5, 2.5]]


def test_what_is_not_said_has_defaults() -> None:
    request = decode(one_input())
    assert type(request) is InferenceRequest
    assert (request.id, request.outputs, request.binary_outputs) == ("", [], False)
    assert (request.priority, request.timeout_seconds) == (None, None)


def test_an_id_is_kept() -> None:
    assert decode(one_input(), id="näme-1").id == "näme-1"


def test_keys_of_later_versions_are_ignored() -> None:
    request = decode(one_input(), model_version="9", unheard_of={"a": [1]})
    assert values_of(request) == [[1.5, 2.5]]


# as the client says it -> the class
PRIORITIES = [
    (0, None),
    (1, Priority.CRITICAL),
    (2, Priority.NORMAL),
    (3, Priority.BACKGROUND),
    (4, Priority.BACKGROUND),
    (2**63, Priority.BACKGROUND),
    ("critical", Priority.CRITICAL),
    ("Normal", Priority.NORMAL),
    ("BACKGROUND", Priority.BACKGROUND),
]


@pytest.mark.parametrize(("said", "meant"), PRIORITIES)
def test_priorities(said: int | str, meant: Priority | None) -> None:
    priority = decode(one_input(), parameters={"priority": said}).priority
    assert priority is meant


@pytest.mark.parametrize(
    ("microseconds", "seconds"), [(0, None), (1, 1e-6), (1500, 0.0015), (2_000_000, 2.0)]
)
def test_a_timeout_is_in_microseconds(microseconds: int, seconds: float | None) -> None:
    request = decode(one_input(), parameters={"timeout": microseconds})
    assert request.timeout_seconds == (None if seconds is None else pytest.approx(seconds))


def test_outputs_say_one_by_one_whether_they_are_binary_and_else_the_request_does() -> None:
    outputs = [
        {"name": "default"},
        {"name": "binary", "parameters": {"binary_data": True}},
        {"name": "json", "parameters": {"binary_data": False}},
    ]
    for all_binary in (True, False):
        request = decode(
            one_input(), outputs=outputs, parameters={"binary_data_output": all_binary}
        )
        assert request.binary_outputs is all_binary
        assert request.outputs == [
            RequestedOutput("default", all_binary),
            RequestedOutput("binary", True),
            RequestedOutput("json", False),
        ]


def test_a_request_may_have_no_inputs() -> None:
    assert decode().inputs == []


def test_the_json_part_ends_where_its_header_says() -> None:
    body = request_json(one_input())
    assert values_of(decode_request(body, len(body))) == [[1.5, 2.5]]
    for header_nbytes in (len(body) - 1, 1):
        with pytest.raises(InvalidRequestError, match="failed to parse"):
            decode_request(body, header_nbytes)
