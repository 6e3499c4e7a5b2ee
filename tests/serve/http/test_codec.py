"""Large bodies are read and written in another process, with the same result."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import numpy as np
import pytest

from treadle.errors import InvalidRequestError, UnavailableError
from treadle.serve import oip
from treadle.serve.config import ModelConfig
from treadle.serve.http.codec import Codec
from treadle.serve.model import ServedModel
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import SharedPlace, SharedTensor, Tensor, from_array
from treadle.types import Priority, TensorSpec

PATIENCE_SECONDS = 30.0
LIMIT_BYTES = 1 << 20
FLOATS = [TensorSpec("x", "FP32", (-1,))]
TEXTS = [TensorSpec("x", "BYTES", (-1,))]


@pytest.fixture
def codec() -> Iterator[Codec]:
    codec = Codec(LIMIT_BYTES)
    yield codec
    helpers = multiprocessing.active_children()
    codec.close()
    for helper in helpers:
        assert wait([helper.sentinel], PATIENCE_SECONDS), "the helper process does not end"


def helper() -> BaseProcess:
    """The codec's other process."""
    (process,) = multiprocessing.active_children()
    return process


def body_of(count: int, **more: object) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [count], "data": [0.5] * count}
    return json.dumps({"inputs": [entry], **more}).encode()


LARGE = body_of(50_000, id="näme", parameters={"priority": 3, "timeout": 5_000_000})


def content(request: InferenceRequest) -> object:
    return (
        [(t.name, t.datatype, t.shape, bytes(t.data)) for t in request.inputs],
        [(output.name, output.binary) for output in request.outputs],
        (request.id, request.priority, request.timeout_seconds, request.binary_outputs),
    )


def test_a_small_body_is_read_at_once(codec: Codec) -> None:
    request = codec.decode_small(body_of(5), None, FLOATS)
    assert request is not None
    assert content(request) == content(oip.decode_request(body_of(5), None))
    assert multiprocessing.active_children() == []


def test_a_large_body_is_not_read_at_once(codec: Codec) -> None:
    assert codec.decode_small(LARGE, None, FLOATS) is None
    assert codec.decode_small(LARGE, len(LARGE), FLOATS) is None


@pytest.mark.parametrize(("inputs", "at_once"), [(FLOATS, True), (TEXTS, False)])
def test_large_binary_data_is_read_at_once_unless_it_is_text(
    codec: Codec, inputs: list[TensorSpec], at_once: bool
) -> None:
    """Elements of text are walked one by one."""
    (spec,) = inputs
    count = 100_000
    entry = {"name": "x", "datatype": spec.datatype, "shape": [count]}
    header = json.dumps(
        {"inputs": [entry | {"parameters": {"binary_data_size": 4 * count}}]}
    ).encode()
    request = codec.decode_small(header + bytes(4 * count), len(header), inputs)
    assert (request is not None) is at_once


def test_a_small_body_with_text_is_read_at_once(codec: Codec) -> None:
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["text"]}]}
    ).encode()
    request = codec.decode_small(body, None, TEXTS)
    assert request is not None
    assert content(request) == content(oip.decode_request(body, None))


def test_a_raw_body_is_read_at_once_whatever_its_size(codec: Codec) -> None:
    request = codec.decode_small(bytes(4_000_000), 0, FLOATS)
    assert request is not None
    assert request.inputs[0].shape == (1_000_000,)


async def test_another_process_reads_the_same(codec: Codec) -> None:
    request = await codec.decode_large(LARGE, None)
    assert content(request) == content(oip.decode_request(LARGE, None))
    assert request.priority is Priority.BACKGROUND
    assert request.timeout_seconds == pytest.approx(5.0)


async def test_another_process_reads_binary_data_too(codec: Codec) -> None:
    entry = {"name": "x", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}}
    header = json.dumps({"inputs": [entry], "outputs": [{"name": "y"}]}).encode()
    body = header + b"\x01\0\x02\0"
    request = await codec.decode_large(body, len(header))
    assert content(request) == content(oip.decode_request(body, len(header)))


async def test_places_in_shared_memory_travel_to_another_process_and_back(codec: Codec) -> None:
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    inputs = [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": place}]
    body = json.dumps({"inputs": inputs, "outputs": [{"name": "y", "parameters": place}]}).encode()
    request = await codec.decode_large(body, None)
    (given,), (wanted,) = request.inputs, request.outputs
    assert isinstance(given, SharedTensor)
    assert given.place == wanted.place == SharedPlace("r", 0, 8)
    model = ServedModel(ModelConfig(name="m", factory="a:b"))
    text, blobs = await codec.encode_large(model, "", [given], [True])
    assert json.loads(text)["outputs"][0]["parameters"] == {**place, "shared_memory_offset": 0}
    assert blobs == []


@pytest.mark.parametrize(
    "body",
    [LARGE[:-1], body_of(5) + b"x", b"[" * 100_000],
    ids=["cut short", "too long", "too deep"],
)
async def test_another_process_refuses_the_same(codec: Codec, body: bytes) -> None:
    with pytest.raises(InvalidRequestError) as here:
        oip.decode_request(body, None)
    with pytest.raises(InvalidRequestError) as there:
        await codec.decode_large(body, None)
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)


@pytest.fixture
def model() -> ServedModel:
    return ServedModel(ModelConfig(name="m", version="3", factory="a:b"))


def outputs(count: int) -> list[Tensor]:
    """Outputs as a worker returns them, copied out of its memory."""
    tensors = [
        from_array("a", np.arange(count, dtype=np.float64)),
        from_array("b", np.array(["text"] * count, object)),
        from_array("c", np.arange(count).astype(np.int8)),
    ]
    return [Tensor(t.name, t.datatype, t.shape, bytes(t.data)) for t in tensors]


@pytest.mark.parametrize("binary", [[False, False, False], [False, True, True]])
async def test_another_process_writes_the_same(
    codec: Codec, model: ServedModel, binary: list[bool]
) -> None:
    tensors = outputs(100)
    expected = oip.encode_response("m", "3", "id", tensors, binary)
    text, blobs = await codec.encode_large(model, "id", tensors, binary)
    assert json.loads(text) == json.loads(expected[0])
    assert list(map(bytes, blobs)) == list(map(bytes, expected[1]))


def test_a_small_answer_is_written_at_once(codec: Codec, model: ServedModel) -> None:
    tensors = outputs(10)
    binary = [False, False, True]
    assert codec.encode_small(model, "id", tensors, binary) == oip.encode_response(
        "m", "3", "id", tensors, binary
    )


def test_only_what_is_written_as_json_is_slow(codec: Codec, model: ServedModel) -> None:
    tensors = outputs(100_000)
    assert codec.encode_small(model, "", tensors, [True, True, True]) is not None
    for position in range(3):
        binary = [number != position for number in range(3)]
        assert codec.encode_small(model, "", tensors, binary) is None


async def test_an_answer_that_json_cannot_say_is_refused_there_too(
    codec: Codec, model: ServedModel
) -> None:
    with pytest.raises(InvalidRequestError, match="output 'y' is not text"):
        await codec.encode_large(
            model, "", [Tensor("y", "BYTES", (1,), b"\x01\0\0\0\xff")], [False]
        )


async def test_without_its_helper_the_codec_is_unavailable_once_and_recovers(codec: Codec) -> None:
    await codec.decode_large(LARGE, None)
    first = helper()
    for victim in (first, None):
        if victim is None:
            await codec.decode_large(LARGE, None)
            victim = helper()  # noqa: PLW2901
            assert victim.pid != first.pid
        victim.kill()
        victim.join(PATIENCE_SECONDS)
        with pytest.raises(UnavailableError, match="try again, or send binary") as caught:
            await codec.decode_large(LARGE, None)
        assert caught.value.retry_after_seconds == 1.0
    assert content(await codec.decode_large(LARGE, None)) == content(
        oip.decode_request(LARGE, None)
    )


async def test_requests_under_way_when_the_helper_dies_are_unavailable(codec: Codec) -> None:
    under_way = [asyncio.create_task(codec.decode_large(LARGE, None)) for _ in range(3)]
    await asyncio.sleep(0)
    helper().kill()
    results = await asyncio.gather(*under_way, return_exceptions=True)
    assert [type(result) for result in results] == [UnavailableError] * 3
    await codec.decode_large(LARGE, None)


def test_a_codec_that_never_had_a_helper_can_be_closed() -> None:
    Codec(LIMIT_BYTES).close()
