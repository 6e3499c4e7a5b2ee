"""Tensor elements between JSON and wire form."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from functools import cache
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
    depth = len(shape) if nested else 1
    if nested and depth < 2:
        raise InvalidRequestError(f"{where}: data is nested deeper than shape {list(shape)}")
    try:
        values = _data_decoder(dtype.kind, depth).decode(data)
        if dtype.kind == "O":
            return _text_elements(values, shape, where, count)
        if len(values) == count and not nested and dtype.char in _ARRAY_CODES:
            return memoryview(array(dtype.char, values)).cast("B")  # quicker than numpy if short
        with np.errstate(over="ignore"):  # what FP16 cannot hold becomes infinite, as in C
            elements = np.array(values, dtype)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{where} of {datatype}: {error}") from None
    except OverflowError:
        limits = np.iinfo(np.dtype(dtype.name))
        low, high = limits.min, limits.max
        raise InvalidRequestError(
            f"{where} of {datatype}: a number is out of range; allowed: {low} to {high}"
        ) from None
    except ValueError:  # lists of unequal lengths
        raise InvalidRequestError(f"{where}: data is not shaped {list(shape)}") from None
    if nested and elements.shape != shape:
        raise InvalidRequestError(
            f"{where}: data is shaped {list(elements.shape)}, not {list(shape)}"
        )
    if elements.size != count:
        raise InvalidRequestError(
            f"{where}: data has {elements.size} elements; shape {list(shape)} needs {count}"
        )
    return raw_bytes(elements)


def _text_elements(values: list[Any], shape: tuple[int, ...], where: str, count: int) -> bytes:
    flat = values
    for _ in range(len(shape) - 1):
        if flat and isinstance(flat[0], list):
            flat = [element for row in flat for element in row]
    if len(flat) != count:
        raise InvalidRequestError(
            f"{where}: data has {len(flat)} elements; shape {list(shape)} needs {count}"
        )
    return pack_bytes(flat)


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
