"""Requests taken apart and answers put together, beside protobuf's own parser."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from treadle.errors import InvalidRequestError
from treadle.serve.grpc.wire import SplitRequest, encode_varint, join_response, split_request

TEXT = st.text(max_size=20)
DATA = st.binary(max_size=300)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = pb.ModelInferRequest(model_name=draw(TEXT), model_version=draw(TEXT), id=draw(TEXT))
    for name in draw(st.lists(TEXT, max_size=3)):
        request.inputs.add(name=name, datatype="FP32", shape=draw(st.lists(st.integers(0, 2**40))))
        request.outputs.add(name=name)
    for name in draw(st.lists(TEXT, max_size=3)):
        request.parameters[name].int64_param = draw(st.integers(-(2**63), 2**63 - 1))
    request.raw_input_contents.extend(draw(st.lists(DATA, max_size=4)))
    return request


@given(requests())
def test_a_request_is_taken_apart_as_protobuf_reads_it(request: Any) -> None:
    split = split_request(request.SerializeToString())
    assert (split.model_name, split.model_version, split.id) == (
        request.model_name,
        request.model_version,
        request.id,
    )
    assert [bytes(data) for data in split.raw] == list(request.raw_input_contents)
    rest = pb.ModelInferRequest.FromString(split.head)
    request.ClearField("raw_input_contents")
    assert rest == request


def test_raw_data_is_not_copied() -> None:
    message = pb.ModelInferRequest(raw_input_contents=[b"abc"]).SerializeToString()
    (data,) = split_request(message).raw
    assert isinstance(data, memoryview)
    assert data.obj is message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(message: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        split = split_request(message)
        with contextlib.suppress(DecodeError):
            read = pb.ModelInferRequest.FromString(message)
            assert [bytes(data) for data in split.raw] == list(read.raw_input_contents)
            assert split.model_name == read.model_name


@given(requests(), st.data())
def test_a_request_that_is_cut_is_refused_or_shorter(request: Any, data: st.DataObject) -> None:
    message = request.SerializeToString()
    cut = message[: data.draw(st.integers(0, len(message)))]
    try:
        expected = pb.ModelInferRequest.FromString(cut)
    except DecodeError:
        return
    split = split_request(cut)
    assert [bytes(part) for part in split.raw] == list(expected.raw_input_contents)


@pytest.mark.parametrize(
    "message",
    [
        b"\x80" * 11,
        b"\xff",
        b"\x3a\x05abc",
        b"\x3a",
        b"\x0a\x02\xff\xfe",
        b"\x3b\x3c",
        b"\x39abc",
        b"\x3a" + b"\xff" * 9 + b"\x01",
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        split_request(message)


def test_a_request_of_endless_fields_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="4096"):
        split_request(b"\x3a\x00" * 100_000)


def test_what_was_found_before_an_error_is_kept() -> None:
    split = SplitRequest()
    message = pb.ModelInferRequest(model_name="m", id="7").SerializeToString()
    with pytest.raises(InvalidRequestError):
        split_request(message + b"\x3a\x05", split)
    assert (split.model_name, split.id) == ("m", "7")


@given(st.lists(DATA, max_size=4), TEXT)
def test_an_answer_is_put_together_as_protobuf_would(data: list[bytes], text: str) -> None:
    expected = pb.ModelInferResponse(model_name=text)
    head = expected.SerializeToString()
    expected.raw_output_contents.extend(data)
    alone = join_response(head, data, streamed=False)
    assert pb.ModelInferResponse.FromString(alone) == expected
    part = pb.ModelStreamInferResponse.FromString(join_response(head, data, streamed=True))
    assert part.infer_response == expected
    assert part.error_message == ""


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_varints(value: int, encoded: bytes) -> None:
    assert encode_varint(value) == encoded
