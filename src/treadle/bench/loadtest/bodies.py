"""What is sent, made before the run: bodies from files, from a model's examples, or by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from treadle.bench.loadtest.loads import Load
from treadle.client.inputs import read_inputs
from treadle.client.node import EncodedRequest, encode_request
from treadle.serve.elements import to_json
from treadle.serve.tensors import DTYPES, Array, Tensor, from_array
from treadle.types import Priority

_LARGEST_INTEGER = 99
"""Small enough for every type, and for what models often take them for: labels, words."""
_TEXT_BYTES = 64


def make_bodies(
    metadata: Mapping[str, Any],
    load: Load,
    examples: Sequence[str],
    *,
    pool: int,
    seed: int,
    timeout_seconds: float | None,
    as_json: bool,
) -> tuple[EncodedRequest, ...]:
    """The bodies that a model gets in turn.

    Args:
        metadata: The model's, as the server gives it.
        load: Its inputs are used if it names any.
        examples: Else these; else random ones.
        pool: How many random ones.
        seed: Of the random ones.
        timeout_seconds: Told to the server if given.
        as_json: Whether tensors are sent as JSON, for servers that take no binary data.

    Raises:
        InvalidRequestError: If a value does not fit the model.
    """
    names = [spec["name"] for spec in metadata["inputs"]]
    if load.inputs:
        given = [read_inputs(metadata, values) for values in _in_turn(load.inputs, names)]
    elif examples:
        given = [read_inputs(metadata, [example]) for example in examples]
    else:
        random = np.random.default_rng([seed, *load.model.encode()])
        given = [random_inputs(metadata, random) for _ in range(pool)]
    encode = encode_json if as_json else encode_request
    parameters = _parameters(load.priority, timeout_seconds)
    return tuple(encode(tensors, parameters) for tensors in given)


def random_inputs(metadata: Mapping[str, Any], random: np.random.Generator) -> list[Tensor]:
    """Random tensors of the smallest shape that a model takes."""
    tensors = []
    for spec in metadata["inputs"]:
        shape = tuple(1 if size == -1 else size for size in spec["shape"])
        tensors.append(from_array(spec["name"], _random(spec["datatype"], shape, random)))
    return tensors


def encode_json(
    tensors: Sequence[Tensor], parameters: Mapping[str, int | str] | None = None
) -> EncodedRequest:
    """Write a request without binary data."""
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "data": to_json(tensor),
        }
        for tensor in tensors
    ]
    content = {"parameters": parameters, "inputs": inputs} if parameters else {"inputs": inputs}
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return EncodedRequest(body, {"Content-Type": "application/json"})


def _in_turn(values: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    """Values of one request after the other.

    Each value is a request of its own, or, where a model has several inputs, the next of its
    input; an input with fewer values begins again.
    """
    by_name: dict[str, list[str]] = {}
    for value in values:
        name, equals, _ = value.partition("=")
        by_name.setdefault(name if equals and name in names else "", []).append(value)
    if len(names) == 1 or set(by_name) == {""}:
        return [[value] for value in values]
    count = max(map(len, by_name.values()))
    return [[given[k % len(given)] for given in by_name.values()] for k in range(count)]


def _random(datatype: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    dtype = DTYPES[datatype]
    if datatype == "BYTES":
        texts: Array = np.empty(shape, np.object_)
        for place in np.ndindex(shape):
            texts[place] = random.integers(ord("a"), ord("z"), _TEXT_BYTES, np.uint8).tobytes()
        return texts
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        return random.integers(0, _LARGEST_INTEGER, shape, endpoint=True).astype(dtype)
    return random.random(shape, np.float32).astype(dtype)


def _parameters(priority: str | None, timeout_seconds: float | None) -> dict[str, int | str]:
    parameters: dict[str, int | str] = {}
    if priority is not None:
        parameters["priority"] = Priority.parse(priority) + 1  # a number: Triton takes no name
    if timeout_seconds is not None:
        parameters["timeout"] = max(1, int(timeout_seconds * 1e6))
    return parameters
