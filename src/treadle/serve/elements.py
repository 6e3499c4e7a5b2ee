"""Tensor elements between JSON and wire form."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from treadle.errors import InvalidRequestError
from treadle.serve.tensors import (
    DTYPES,
    Buffer,
    Tensor,
    pack_bytes,
    raw_bytes,
    to_array,
    unpack_bytes,
)

_NESTED = re.compile(rb"\s*\[\s*\[")
_ARRAY_CODES = frozenset("bBhHiIlLqQfd")
"""Element types that numpy and the array module give the same letter."""

_ELEMENT_TYPES: Mapping[str, type] = {
    "b": bool,
    "i": int,
    "u": int,
    "f": float,
    "V": float,  # bfloat16, for numpy a foreign type
    "O": str,
}


@cache
def _data_decoder(kind: str, depth: int) -> msgspec.json.Decoder[Any]:
    """A strict decoder of lists, ``depth`` deep, of one element type."""
    element: Any = _ELEMENT_TYPES[kind]
    for _ in range(depth):
        element = list[element]
    return msgspec.json.Decoder(element)


def from_json(data: Raw, datatype: str, shape: tuple[int, ...], where: str) -> Buffer:
    """Put elements given as JSON into wire form. Lists may be flat or nested like the shape.

    Args:
        data: The JSON text.
        datatype: Protocol name of the element type.
        shape: Dimensions that the elements must fill exactly.
        where: Names the input in errors.

    Raises:
        InvalidRequestError: Says what is wrong and what is allowed.
    """
    dtype, count = DTYPES[datatype], math.prod(shape)
    nested = _NESTED.match(data) is not None
    if nested and len(shape) < 2:
        raise InvalidRequestError(f"{where}: data is nested deeper than shape {list(shape)}")
    try:
        values = _data_decoder(dtype.kind, len(shape) if nested else 1).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{where} of {datatype}: {error}") from None
    if nested:
        values = _flatten(values, shape, where)
    if len(values) != count:
        raise InvalidRequestError(
            f"{where}: data has {len(values)} elements; shape {list(shape)} needs {count}"
        )
    if dtype.kind == "O":
        return pack_bytes(values)
    try:
        if dtype.char in _ARRAY_CODES:
            return memoryview(array(dtype.char, values)).cast("B")  # quicker than numpy if short
        with np.errstate(over="ignore"):  # what FP16 cannot hold becomes infinite, as in C
            return raw_bytes(np.array(values, dtype))
    except OverflowError:
        limits = np.iinfo(np.dtype(dtype.name))
        raise InvalidRequestError(
            f"{where} of {datatype}: a number is out of range; allowed: {limits.min} to "
            f"{limits.max}"
        ) from None


def _flatten(values: list[Any], shape: tuple[int, ...], where: str) -> list[Any]:
    """Nested lists as one. Each level must have the size that the shape gives it."""
    fits, given = len(values) == shape[0], [len(values)]
    for size in shape[1:]:
        fits = fits and all(len(row) == size for row in values)
        given += [len(values[0])] if values else []
        values = list(chain.from_iterable(values))
    if not fits:
        raise InvalidRequestError(f"{where}: data is shaped {given}, not {list(shape)}")
    return values


def to_json(tensor: Tensor) -> Any:
    """Elements in a form that orjson writes as a flat list.

    Raises:
        InvalidRequestError: If BYTES elements are not text.
    """
    if tensor.datatype == "BYTES":
        try:
            return [e.decode() for e in unpack_bytes(tensor.data, math.prod(tensor.shape))]
        except UnicodeDecodeError:
            raise InvalidRequestError(
                f"output '{tensor.name}' is not text: ask for it with binary_data"
            ) from None
    array = to_array(tensor).reshape(-1)
    return array.astype(np.float32) if tensor.datatype == "BF16" else array
