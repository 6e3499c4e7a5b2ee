"""Whatever a stranger sends: a sound request, or an InvalidRequestError, and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from treadle.errors import InvalidRequestError
from treadle.serve.oip import decode_raw_request, decode_request
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import DTYPES, Array, from_array, to_array
from treadle.types import TensorSpec

from .bodies import assert_sound
from .strategies import ARRAYS, is_finite

FUZZ = settings(suppress_health_check=[*HealthCheck])


def decode_anything(body: bytes, header_nbytes: int | None) -> InferenceRequest | None:
    """The request, proved sound; None if it was refused as it should be."""
    try:
        request = decode_request(body, header_nbytes)
    except InvalidRequestError:
        return None
    assert_sound(request)
    return request


# A valid body is made of inputs in three forms, and of parameters and outputs.

PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(0, 4) | st.sampled_from(["critical", "Normal", "BACKGROUND"]),
        "timeout": st.integers(0, 2**40),
        "binary_data_output": st.booleans(),
    },
)
OUTPUTS = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=4)},
        optional={"parameters": st.fixed_dictionaries({"binary_data": st.booleans()})},
    ),
    max_size=2,
)


def plain(array: Array) -> Array | None:
    """An array as JSON can say it; None if it cannot."""
    if array.dtype == np.object_:
        try:
            flat = [element.decode() for element in array.ravel().tolist()]
        except UnicodeDecodeError:
            return None
        texts = np.empty(len(flat), np.object_)
        texts[:] = flat
        return texts.reshape(array.shape)
    if array.dtype.kind in "fV":
        return array.astype(np.float64) if is_finite(array).all() else None
    return array


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int, list[Array]]:
    """A valid body, the size of its JSON part, and the tensors that it holds."""
    arrays, entries, blobs = draw(st.lists(ARRAYS, max_size=3)), [], []
    for number, array in enumerate(arrays):
        tensor = from_array(f"x{number}", array)
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        form, said = draw(st.sampled_from(["binary", "flat", "nested"])), plain(array)
        if said is None or form == "binary":
            entry["parameters"] = {"binary_data_size": len(tensor.data)}
            blobs.append(tensor.data)
        elif form == "nested" and array.size and array.ndim:
            entry["data"] = said.tolist()
        else:
            entry["data"] = said.ravel().tolist()
        entries.append(entry)
    content = {"inputs": entries, "parameters": draw(PARAMETERS), "outputs": draw(OUTPUTS)}
    header = json.dumps(content).encode()
    return header + b"".join(blobs), len(header), arrays


@FUZZ
@given(bodies())
def test_valid_bodies_decode_to_what_they_hold(body: tuple[bytes, int, list[Array]]) -> None:
    request = decode_anything(body[0], body[1])
    assert request is not None
    for tensor, array in zip(request.inputs, body[2], strict=True):
        back = to_array(tensor)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        if array.dtype.kind in "fV":
            assert np.array_equal(back[is_finite(back)], array[is_finite(array)])
        else:
            assert back.tolist() == array.tolist()


@st.composite
def mutations(draw: st.DrawFn) -> tuple[bytes, int | None]:
    """A valid body after some accidents."""
    valid, header_nbytes, _ = draw(bodies())
    body = bytearray(valid)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["digit", "flip", "insert", "delete", "truncate", "word"])):
            case "digit":
                at = body.find(draw(st.sampled_from(b"0123456789")), at)
                body[at : at + 1] = draw(st.sampled_from([b"0", b"1", b"2", b"9", b"-1", b"1.5"]))
            case "flip" if at < len(body):
                body[at] ^= draw(st.integers(1, 255))
            case "insert":
                body[at:at] = draw(st.binary(min_size=1, max_size=4))
            case "delete":
                del body[at : at + draw(st.integers(1, 8))]
            case "truncate":
                del body[at:]
            case _:
                body[at:at] = draw(st.sampled_from([b"[", b"]", b"null", b"-1", b"1e999", b'"']))
    if draw(st.integers(0, 9)):
        return bytes(body), header_nbytes + len(body) - len(valid)  # the JSON part has grown
    return bytes(body), draw(st.none() | st.integers(-5, len(body) + 5))


@FUZZ
@given(mutations())
def test_mutated_bodies(mutation: tuple[bytes, int | None]) -> None:
    decode_anything(*mutation)


@FUZZ
@given(st.binary(max_size=200), st.none() | st.integers(-5, 300))
def test_random_bytes(body: bytes, header_nbytes: int | None) -> None:
    decode_anything(body, header_nbytes)


# JSON that speaks the protocol's words in any order.

NUMBERS = (
    st.integers(-3, 5)
    | st.sampled_from([2**31, 2**48, 2**63, 2**64, -(2**63) - 1, 10**400])
    | st.floats(allow_nan=False, allow_infinity=False)
)
WORDS = st.sampled_from(
    [
        *("name", "shape", "datatype", "data", "parameters", "inputs", "outputs", "id"),
        *(
            "priority",
            "timeout",
            "critical",
            "binary_data_size",
            "binary_data",
            "binary_data_output",
        ),
        *DTYPES,
    ]
)
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS | st.text(max_size=3)
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4)
)
DATATYPES = st.sampled_from([*DTYPES])
SHAPES = st.lists(st.integers(0, 2), max_size=3)
LISTS = st.one_of(
    *(
        st.lists(leaves, max_size=3)
        | st.lists(st.lists(leaves, min_size=1, max_size=2), max_size=2)
        | st.lists(st.lists(st.lists(leaves, max_size=2), max_size=2), max_size=2)
        for leaves in (st.booleans(), NUMBERS, st.integers(0, 9), st.text(max_size=3))
    )
)
SIZE = st.fixed_dictionaries({"binary_data_size": st.integers(0, 9)})
NAMED = {"name": st.text(max_size=3), "shape": SHAPES, "datatype": DATATYPES}
INPUT = (
    st.fixed_dictionaries({**NAMED, "data": LISTS})
    | st.fixed_dictionaries({**NAMED, "parameters": SIZE})
    | st.fixed_dictionaries(
        {"name": JSON, "shape": SHAPES | JSON, "datatype": DATATYPES | JSON},
        optional={"data": LISTS | JSON, "parameters": SIZE | JSON},
    )
)
REQUEST = st.fixed_dictionaries(
    {"inputs": st.lists(INPUT, max_size=2) | st.lists(INPUT | JSON, max_size=3)},
    optional={"parameters": PARAMETERS | JSON, "outputs": OUTPUTS | JSON, "id": JSON},
) | st.fixed_dictionaries({"inputs": st.lists(INPUT, min_size=1, max_size=1)})


@FUZZ
@given(REQUEST | JSON, st.binary(max_size=9))
@example({"inputs": [{"name": "x", "shape": [1], "datatype": "FP16", "data": [7e4]}]}, b"")
@example({"inputs": [{"name": "x", "shape": [1], "datatype": "BF16", "data": [1e300]}]}, b"")
@example({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["\ud800"]}]}, b"")
@example({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT8", "data": [[10**400]]}]}, b"")
@example({"inputs": [{"name": "x", "shape": [2**48] * 32, "datatype": "INT8", "data": []}]}, b"")
def test_random_json(content: object, behind: bytes) -> None:
    header = json.dumps(content).encode()
    for size in range(len(behind) + 1):  # so that some announced size fits
        decode_anything(header + behind[:size], len(header))


@FUZZ
@given(
    st.binary(max_size=64),
    st.lists(
        st.builds(
            TensorSpec,
            st.just("x"),
            st.sampled_from([*DTYPES]),
            st.lists(st.integers(-1, 3), max_size=4).map(tuple),
        ),
        max_size=2,
    ),
)
def test_raw_bodies(body: bytes, specs: list[TensorSpec]) -> None:
    try:
        (tensor,) = decode_raw_request(body, specs).inputs
    except InvalidRequestError:
        return
    assert tensor.datatype == specs[0].datatype
    assert len(tensor.shape) == len(specs[0].shape)
    assert all(size >= 0 for size in tensor.shape)
    if tensor.datatype != "BYTES":
        assert math.prod(tensor.shape) * DTYPES[tensor.datatype].itemsize <= max(
            len(body), 3**4 * 8
        )
