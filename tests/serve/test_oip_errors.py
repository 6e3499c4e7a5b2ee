"""Requests that are wrong: the answer names the input and says what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.errors import InvalidRequestError
from treadle.serve.oip import decode_request
from treadle.serve.validate import MAX_RANK

from .bodies import decode, decode_binary, one_input, request_json

# what is wrong, the changes that make a good input wrong, what the answer says
INPUTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("datatype", {"datatype": "FLOAT"}, ["input 'x'", "'FLOAT'", "BOOL, UINT8", "BYTES"]),
    ("datatype in lower case", {"datatype": "fp32"}, ["input 'x'", "'fp32'", "FP32"]),
    ("no data", {"data": None}, ["input 'x'", "neither data nor binary_data_size"]),
    ("too few elements", {"data": [1.0]}, ["input 'x'", "1 elements", "[2] needs 2"]),
    ("too many elements", {"data": [1, 2, 3]}, ["input 'x'", "3 elements", "[2] needs 2"]),
    ("no elements", {"data": []}, ["input 'x'", "0 elements", "[2] needs 2"]),
    ("an element too many for none", {"shape": [0]}, ["input 'x'", "2 elements", "[0] needs 0"]),
    ("a number as data", {"data": 5}, ["input 'x'", "FP32", "array"]),
    ("null as data", {"shape": [1], "data": [None]}, ["input 'x'", "FP32", "float", "null"]),
    ("text as data", {"data": "[1, 2]"}, ["input 'x'", "FP32", "array"]),
    ("an object as data", {"data": {"a": 1}}, ["input 'x'", "FP32", "array"]),
    ("text among numbers", {"data": [1, "2"]}, ["input 'x'", "FP32", "float", "str"]),
    ("truth among numbers", {"data": [1, True]}, ["input 'x'", "FP32", "float", "bool"]),
    (
        "a fraction among integers",
        {"datatype": "INT64", "data": [1, 2.5]},
        ["input 'x'", "INT64", "int", "float"],
    ),
    ("a number as truth", {"datatype": "BOOL", "data": [0, 1]}, ["input 'x'", "BOOL", "bool"]),
    ("a number as text", {"datatype": "BYTES", "data": ["a", 1]}, ["input 'x'", "BYTES", "str"]),
    ("too large", {"datatype": "UINT8", "data": [0, 256]}, ["input 'x'", "UINT8", "0 to 255"]),
    ("negative", {"datatype": "UINT8", "data": [0, -1]}, ["input 'x'", "UINT8", "0 to 255"]),
    (
        "too large in nested data",
        {"datatype": "INT8", "shape": [1, 2], "data": [[0, 128]]},
        ["input 'x'", "INT8", "-128 to 127"],
    ),
    (
        "far too large",
        {"datatype": "INT64", "data": [0, 2**63]},
        ["input 'x'", "INT64", f"{-(2**63)} to {2**63 - 1}"],
    ),
    (
        "unsigned and far too large",
        {"datatype": "UINT64", "data": [0, 2**64]},
        ["input 'x'", "UINT64", f"0 to {2**64 - 1}"],
    ),
    ("nested too deep", {"data": [[1, 2]]}, ["input 'x'", "nested deeper", "[2]"]),
    ("nested for a scalar", {"shape": [], "data": [[1]]}, ["input 'x'", "nested deeper", "[]"]),
    (
        "nested the other way",
        {"shape": [1, 2], "data": [[1], [2]]},
        ["input 'x'", "shaped [2, 1]", "[1, 2]"],
    ),
    (
        "more rows than the shape has, of no elements",
        {"shape": [2, 0], "data": [[], [], []]},
        ["input 'x'", "shaped [3, 0]", "[2, 0]"],
    ),
    ("ragged", {"shape": [2, 2], "data": [[1, 2, 3], [4]]}, ["input 'x'", "shaped", "[2, 2]"]),
    (
        "ragged text",
        {"datatype": "BYTES", "shape": [2, 2], "data": [["a", "b", "c"], ["d"]]},
        ["input 'x'", "shaped", "[2, 2]"],
    ),
    (
        "text nested the other way",
        {"datatype": "BYTES", "shape": [1, 2], "data": [["a"], ["b"]]},
        ["input 'x'", "shaped", "[1, 2]"],
    ),
    ("half nested", {"shape": [2, 1], "data": [[1], 2]}, ["input 'x'", "FP32", "array"]),
    ("not nested enough", {"shape": [1, 1, 2], "data": [[1, 2]]}, ["input 'x'", "FP32", "array"]),
    ("a dimension below zero", {"shape": [-1]}, ["inputs[0].shape", ">= 0"]),
    ("a dimension that is text", {"shape": ["2"]}, ["inputs[0].shape", "int", "str"]),
    ("a dimension without end", {"shape": [2**48 + 1]}, ["inputs[0].shape", "<= 281474976710656"]),
    (
        "too many dimensions",
        {"shape": [1] * (MAX_RANK + 1), "data": [1]},
        ["input 'x'", "33 dimensions", "at most 32"],
    ),
    ("no shape", {"shape": None}, ["missing", "`shape`", "inputs[0]"]),
    ("no name", {"name": None}, ["missing", "`name`", "inputs[0]"]),
    ("no datatype", {"datatype": None}, ["missing", "`datatype`", "inputs[0]"]),
    (
        "both kinds of data",
        {"parameters": {"binary_data_size": 8}},
        ["input 'x'", "both data and binary_data_size"],
    ),
    (
        "another parameter",
        {"parameters": {"shared_memory_key": "r"}},
        ["input 'x'", "'shared_memory_key'", "allowed: binary_data_size"],
    ),
    (
        "both shared memory and data",
        {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}},
        ["input 'x'", "both shared memory and other data"],
    ),
    (
        "shared memory without a size",
        {"data": None, "parameters": {"shared_memory_region": "r"}},
        ["input 'x'", "shared_memory_byte_size None", "a whole number from 0"],
    ),
    (
        "a size in no region",
        {"data": None, "parameters": {"shared_memory_byte_size": 8}},
        ["input 'x'", "shared_memory_region None", "the name of a registered one"],
    ),
    (
        "shared memory before its start",
        {
            "data": None,
            "parameters": {
                "shared_memory_region": "r",
                "shared_memory_byte_size": 8,
                "shared_memory_offset": -1,
            },
        },
        ["input 'x'", "shared_memory_offset -1", "a whole number from 0"],
    ),
    (
        "a size below zero",
        {"data": None, "parameters": {"binary_data_size": -1}},
        ["input 'x'", "-1", "a whole number from 0"],
    ),
    (
        "a size that is true",
        {"data": None, "parameters": {"binary_data_size": True}},
        ["input 'x'", "True", "a whole number from 0"],
    ),
    (
        "a size that is text",
        {"data": None, "parameters": {"binary_data_size": "8"}},
        ["input 'x'", "'8'", "a whole number from 0"],
    ),
    (
        "a size larger than the body",
        {"data": None, "parameters": {"binary_data_size": 8}},
        ["input 'x'", "8 bytes", "0 are left"],
    ),
]


def assert_refused(said: list[str], *inputs: dict[str, Any], **more: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(*inputs, **more)
    assert [part for part in said if part not in str(caught.value)] == []


@pytest.mark.parametrize(("changes", "said"), [c[1:] for c in INPUTS], ids=[c[0] for c in INPUTS])
def test_inputs(changes: dict[str, Any], said: list[str]) -> None:
    assert_refused(said, one_input(**changes))


def test_the_wrong_input_of_several_is_named() -> None:
    good, wrong = one_input(name="good"), one_input(name="wrong", data=[1])
    assert_refused(["input 'wrong'"], good, wrong, good)


# entry, its data, what the answer says
BINARY: list[tuple[dict[str, Any], bytes, list[str]]] = [
    ({"shape": [2]}, bytes(4), ["input 'x'", "4 bytes", "[2] of FP32 needs 8"]),
    ({"shape": [2]}, bytes(12), ["input 'x'", "12 bytes", "[2] of FP32 needs 8"]),
    ({"shape": [0]}, bytes(4), ["input 'x'", "4 bytes", "[0] of FP32 needs 0"]),
    ({"shape": []}, bytes(8), ["input 'x'", "8 bytes", "[] of FP32 needs 4"]),
    ({"datatype": "BOOL"}, b"\x01\x02", ["input 'x'", "BOOL", "0 and 1"]),
    ({"datatype": "BYTES"}, b"\0\0\0\0", ["input 'x'", "1 elements where 2 are due"]),
    ({"datatype": "BYTES"}, b"\0\0\0\0" * 3, ["input 'x'", "4 bytes left over"]),
    ({"datatype": "BYTES"}, b"\x05\0\0\0abc", ["input 'x'", "element 0 reaches past"]),
    ({"datatype": "BYTES", "shape": [2**48] * 32}, b"\0\0\0\0", ["input 'x'", "elements where"]),
]


@pytest.mark.parametrize(("entry", "data", "said"), BINARY)
def test_binary_data(entry: dict[str, Any], data: bytes, said: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_binary((entry, data))
    assert [part for part in said if part not in str(caught.value)] == []


# parameters of the request, what the answer says
PARAMETERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"priority": -1}, ["priority is -1", "1 (critical)", "3 and above (background)"]),
    ({"priority": 1.0}, ["priority is 1.0", "1 (critical)"]),
    ({"priority": True}, ["priority is True", "1 (critical)"]),
    ({"priority": "urgent"}, ["'urgent'", "critical, normal, background"]),
    ({"priority": [1]}, ["parameters"]),
    ({"timeout": -1}, ["timeout is -1", "microseconds", "from 0"]),
    ({"timeout": 1.5}, ["timeout is 1.5", "microseconds", "from 0"]),
    ({"timeout": "1"}, ["timeout is '1'", "microseconds", "from 0"]),
    ({"timeout": False}, ["timeout is False", "microseconds", "from 0"]),
    ({"binary_data_output": 1}, ["binary_data_output is 1", "true and false"]),
    ({"sequence_id": 1}, ["'sequence_id'", "binary_data_output, priority, timeout"]),
]


@pytest.mark.parametrize(("parameters", "said"), PARAMETERS)
def test_parameters(parameters: dict[str, Any], said: list[str]) -> None:
    assert_refused(said, one_input(), parameters=parameters)


# an output that is asked for, what the answer says
OUTPUTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["missing", "`name`", "outputs[0]"]),
    (
        {"name": "y", "parameters": {"classification": 3}},
        ["output 'y'", "'classification'", "allowed: binary_data"],
    ),
    ({"name": "y", "parameters": {"binary_data": "yes"}}, ["'yes'", "true and false"]),
    (
        {
            "name": "y",
            "parameters": {
                "binary_data": True,
                "shared_memory_region": "r",
                "shared_memory_byte_size": 8,
            },
        },
        ["output 'y'", "both shared memory and binary_data"],
    ),
]


@pytest.mark.parametrize(("output", "said"), OUTPUTS)
def test_outputs(output: dict[str, Any], said: list[str]) -> None:
    assert_refused(said, one_input(), outputs=[output])


# a body that is no request, what the answer says
BODIES: list[tuple[bytes, list[str]]] = [
    (b"", ["failed to parse"]),
    (b"null", ["failed to parse", "object", "null"]),
    (b"[]", ["failed to parse", "object", "array"]),
    (b"{}", ["failed to parse", "`inputs`"]),
    (b'{"inputs": 5}', ["failed to parse", "inputs", "array", "int"]),
    (b'{"inputs": [5]}', ["failed to parse", "inputs[0]", "object", "int"]),
    (b'{"inputs": []', ["failed to parse"]),
    (b'{"inputs": []} x', ["failed to parse", "trailing"]),
    (b'{"inputs": [], "id": 5}', ["failed to parse", "id", "str", "int"]),
    (b'{"inputs": [], "id": "\xff"}', ["failed to parse"]),
    (b'{"inputs": [], "id": "\\ud800"}', ["failed to parse"]),
    (b"\xff\xfe", ["failed to parse"]),
    (b'{"inputs": [' + b"[" * 100_000, ["failed to parse"]),
    (b'{"inputs": [{"data": ' + b"[" * 100_000, ["failed to parse"]),
]


@pytest.mark.parametrize(("body", "said"), BODIES, ids=[repr(body[:24]) for body, _ in BODIES])
def test_bodies(body: bytes, said: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_request(body, None)
    assert [part for part in said if part not in str(caught.value)] == []


@pytest.mark.parametrize("extra", [1, -1000])
def test_a_json_part_that_the_body_does_not_have_is_refused(extra: int) -> None:
    body = request_json(one_input())
    with pytest.raises(InvalidRequestError, match="Inference-Header-Content-Length") as caught:
        decode_request(body, len(body) + extra)
    assert str(len(body)) in str(caught.value)


def test_data_that_belongs_to_no_input_is_refused() -> None:
    body = request_json(one_input())
    with pytest.raises(InvalidRequestError, match="3 bytes after the last input"):
        decode_request(body + b"abc", len(body))
