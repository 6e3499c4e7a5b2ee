"""Requests as protobuf brings them, and answers as it takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from treadle.errors import InvalidRequestError
from treadle.serve.grpc.messages import (
    decode_message,
    decode_request,
    encode_answer,
    encode_error,
)
from treadle.serve.grpc.wire import split_request
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import SharedPlace, SharedTensor, Tensor, to_array
from treadle.types import Priority


def decode(message: Any, **more: bool) -> InferenceRequest:
    return decode_request(split_request(message.SerializeToString()), **more)


def request_of(datatype: str, shape: list[int], raw: Any = None, **contents: Any) -> Any:
    request = pb.ModelInferRequest(model_name="m", id="r")
    entry = request.inputs.add(name="x", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(entry.contents, field).extend(values)
    if raw is not None:
        request.raw_input_contents.append(raw)
    return request


TYPED: list[tuple[str, str, list[Any]]] = [
    ("BOOL", "bool_contents", [True, False]),
    ("INT8", "int_contents", [-128, 127]),
    ("INT16", "int_contents", [-(2**15), 2**15 - 1]),
    ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
    ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
    ("UINT8", "uint_contents", [0, 255]),
    ("UINT16", "uint_contents", [0, 2**16 - 1]),
    ("UINT32", "uint_contents", [0, 2**32 - 1]),
    ("UINT64", "uint64_contents", [0, 2**64 - 1]),
    ("FP32", "fp32_contents", [0.5, float("inf")]),
    ("FP64", "fp64_contents", [0.1, -1e300]),
    ("BYTES", "bytes_contents", [b"", b"\xff\0"]),
]


@pytest.mark.parametrize(("datatype", "field", "values"), TYPED)
def test_typed_contents_become_wire_form(datatype: str, field: str, values: list[Any]) -> None:
    (tensor,) = decode(request_of(datatype, [2, 1], **{field: values})).inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, (2, 1))
    assert to_array(tensor).ravel().tolist() == values


def test_raw_contents_are_handed_on() -> None:
    array = np.array([[1, -2]], ml_dtypes.bfloat16)
    (tensor,) = decode(request_of("BF16", [1, 2], array.tobytes())).inputs
    assert to_array(tensor).tolist() == array.tolist()


def test_an_input_without_elements_needs_no_contents() -> None:
    (tensor,) = decode(request_of("FP32", [0])).inputs
    assert len(tensor.data) == 0


def test_parameters_mean_what_they_mean_over_http() -> None:
    message = request_of("INT8", [1], b"\1")
    message.parameters["priority"].uint64_param = 3
    message.parameters["timeout"].int64_param = 2_000_000
    message.parameters["binary_data_output"].bool_param = True
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    request = decode(message)
    assert (request.priority, request.timeout_seconds) == (Priority.BACKGROUND, 2.0)
    assert request.empty_final
    assert request.id == "r"


def test_outputs_and_places_in_shared_memory_are_read() -> None:
    message = request_of("INT8", [4])
    for entry in (message.inputs[0], message.outputs.add(name="y")):
        entry.parameters["shared_memory_region"].string_param = "r"
        entry.parameters["shared_memory_byte_size"].int64_param = 4
    entry.parameters["shared_memory_offset"].int64_param = 8
    request = decode(message)
    (tensor,) = request.inputs
    assert isinstance(tensor, SharedTensor)
    assert tensor.place == SharedPlace("r", 0, 4)
    assert request.outputs[0].place == SharedPlace("r", 8, 4)
    assert request.shares_memory


def test_raw_contents_are_those_of_the_inputs_that_are_not_in_shared_memory() -> None:
    message = request_of("INT8", [4], b"ab")
    message.inputs[0].parameters["shared_memory_region"].string_param = "r"
    message.inputs[0].parameters["shared_memory_byte_size"].int64_param = 4
    message.inputs.add(name="z", datatype="INT8", shape=[2])
    assert [bytes(tensor.data) for tensor in decode(message).inputs] == [b"", b"ab"]


def with_parameter(name: str, **value: Any) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        for kind, content in value.items():
            setattr(message.parameters[name], kind, content)
        if not value:
            message.parameters[name].SetInParent()

    return change


def with_typed_contents(message: Any) -> None:
    message.inputs[0].contents.int_contents.append(1)


def with_input_parameter(message: Any) -> None:
    message.inputs[0].parameters["binary_data_size"].int64_param = 1


def with_class_count(message: Any) -> None:
    message.outputs.add(name="y").parameters["classification"].int64_param = 1


GOOD = request_of("INT8", [1], b"\1")
WRONG: list[tuple[str, Any, str]] = [
    ("unknown datatype", request_of("STRING", [1], b"\1"), "'STRING'; allowed: BOOL"),
    ("negative size", request_of("INT8", [-1], b"\1"), "sizes from 0"),
    ("many dimensions", request_of("INT8", [1] * 33, b"\1"), "33 dimensions"),
    ("too little raw data", request_of("INT32", [2], b"1234"), "needs 8"),
    ("too few contents", request_of("INT32", [2], int_contents=[1]), "1 elements; .* needs 2"),
    ("no contents", request_of("INT32", [2]), "0 elements"),
    ("other contents", request_of("INT32", [1], fp32_contents=[1]), "fp32_contents; allowed: int_"),
    ("out of range", request_of("UINT8", [1], uint_contents=[256]), "allowed: 0 to 255"),
    ("typed half precision", request_of("FP16", [1], fp32_contents=[1]), "raw_input_contents"),
    ("lying lengths", request_of("BYTES", [1], b"\x05\0\0\0ab"), "reaches past the end"),
    ("no truth value", request_of("BOOL", [1], b"\2"), "0 and 1"),
    ("not one raw content each", request_of("INT8", [1]), "0 elements"),
]
CHANGED: list[tuple[str, Callable[[Any], None], str]] = [
    ("unknown parameter", with_parameter("sequence_id", int64_param=1), "'sequence_id'; allowed"),
    ("no value", with_parameter("timeout"), "'timeout' has no value"),
    ("negative timeout", with_parameter("timeout", int64_param=-1), "timeout is -1"),
    ("timeout as text", with_parameter("timeout", string_param="1"), "timeout is '1'"),
    ("priority as truth", with_parameter("priority", bool_param=True), "priority is True"),
    ("outputs as JSON", with_parameter("binary_data_output", bool_param=False), "binary data"),
    ("both kinds of contents", with_typed_contents, "beside raw_input_contents"),
    ("parameter of an input", with_input_parameter, "'binary_data_size'; allowed: shared_mem"),
    ("parameter of an output", with_class_count, "'classification'"),
    ("an input without data", lambda m: m.inputs.add(name="y", datatype="INT8"), "each input"),
    ("data without an input", lambda m: m.raw_input_contents.append(b""), "additional input"),
]


@pytest.mark.parametrize(("message", "said"), [pytest.param(m, s, id=name) for name, m, s in WRONG])
def test_a_wrong_request_is_refused_with_the_reason(message: Any, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        decode(message)


@pytest.mark.parametrize(
    ("change", "said"), [pytest.param(c, s, id=name) for name, c, s in CHANGED]
)
def test_one_change_makes_a_good_request_wrong(change: Callable[[Any], None], said: str) -> None:
    message = pb.ModelInferRequest.FromString(GOOD.SerializeToString())
    assert decode(message)
    change(message)
    with pytest.raises(InvalidRequestError, match=said):
        decode(message)


def test_text_for_a_model_that_takes_none_is_not_walked() -> None:
    with pytest.raises(InvalidRequestError, match="takes no input of that type"):
        decode(request_of("BYTES", [1], b"\x05\0\0\0ab"), texts=False)


def test_a_request_decoded_elsewhere_can_travel() -> None:
    request = decode_message(GOOD.SerializeToString())
    assert [type(tensor.data) for tensor in request.inputs] == [bytes]


OUTPUTS = [
    Tensor("a", "INT8", (2,), b"ab"),
    SharedTensor("b", "INT8", (3,), b"", SharedPlace("r", 8, 3)),
    Tensor("c", "INT8", (1,), memoryview(b"c")),
]


@pytest.mark.parametrize("final", [True, False])
def test_an_answer_in_a_stream_says_whether_it_is_the_last(final: bool) -> None:
    encoded = encode_answer("m", "3", "r", OUTPUTS, final=final)
    answer = pb.ModelStreamInferResponse.FromString(encoded).infer_response
    assert answer.parameters["triton_final_response"].bool_param is final


def test_an_answer_holds_what_it_should() -> None:
    answer = pb.ModelInferResponse.FromString(encode_answer("m", "3", "r", OUTPUTS))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "3", "r")
    assert [(o.name, o.datatype, list(o.shape)) for o in answer.outputs] == [
        ("a", "INT8", [2]),
        ("b", "INT8", [3]),
        ("c", "INT8", [1]),
    ]
    assert list(answer.raw_output_contents) == [b"ab", b"", b"c"]
    place = answer.outputs[1].parameters
    assert place["shared_memory_region"].string_param == "r"
    assert place["shared_memory_byte_size"].int64_param == 3
    assert place["shared_memory_offset"].int64_param == 8
    assert not answer.parameters


def test_an_error_in_a_stream_says_whose_it_is() -> None:
    response = pb.ModelStreamInferResponse.FromString(encode_error("r", "no"))
    assert (response.error_message, response.infer_response.id) == ("no", "r")
