"""Tensors as they travel: a name, a protocol datatype, a shape and row-major bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt
from msgspec import Struct

Array = npt.NDArray[np.generic]
Buffer = bytes | bytearray | memoryview

DTYPES: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        "BOOL": np.dtype(np.bool_),
        "UINT8": np.dtype(np.uint8),
        "UINT16": np.dtype(np.uint16),
        "UINT32": np.dtype(np.uint32),
        "UINT64": np.dtype(np.uint64),
        "INT8": np.dtype(np.int8),
        "INT16": np.dtype(np.int16),
        "INT32": np.dtype(np.int32),
        "INT64": np.dtype(np.int64),
        "FP16": np.dtype(np.float16),
        "FP32": np.dtype(np.float32),
        "FP64": np.dtype(np.float64),
        # Not in the protocol's own list, but clients send it.
        "BF16": np.dtype(ml_dtypes.bfloat16),
        "BYTES": np.dtype(np.object_),
    }
)
"""Protocol datatypes and the numpy type of their elements."""

_DATATYPES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = struct.Struct("<I")


class Tensor(Struct, eq=False):
    """A tensor in wire form: little-endian, row-major, no padding.

    BYTES elements are each preceded by their length as a 4-byte unsigned integer.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer


class SharedPlace(Struct):
    """A place in a shared memory region that a client has registered."""

    region: str
    offset: int
    nbytes: int


class SharedTensor(Tensor, eq=False):
    """A tensor whose data lies in shared memory; ``data`` is empty."""

    place: SharedPlace


def datatype_of(dtype: npt.DTypeLike) -> str:
    """The protocol's name for a numpy type.

    Raises:
        ValueError: If the protocol has none.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "SU":
        return "BYTES"
    try:
        return _DATATYPES[dtype]
    except KeyError:
        raise ValueError(f"no protocol datatype holds numpy type {dtype}") from None


def fixed_nbytes(datatype: str, shape: Sequence[int]) -> int | None:
    """Size in bytes of a tensor's data, None for BYTES, whose elements vary."""
    if datatype == "BYTES":
        return None
    return math.prod(shape) * DTYPES[datatype].itemsize


def from_array(name: str, array: Array) -> Tensor:
    """Put an array into wire form. Copies only where the array is not contiguous.

    Raises:
        ValueError: If the protocol has no datatype for it, or a BYTES element is no text.
    """
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        return Tensor(name, datatype, array.shape, pack_bytes(array.ravel().tolist()))
    contiguous = np.ascontiguousarray(array)
    return Tensor(name, datatype, array.shape, raw_bytes(contiguous))


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array, without copying."""
    return array.reshape(-1).view(np.uint8).data


def to_array(tensor: Tensor) -> Array:
    """View a tensor in wire form as an array; BYTES elements become ``bytes`` objects.

    Raises:
        ValueError: If the data does not fill the shape exactly.
    """
    if tensor.datatype != "BYTES":
        return np.frombuffer(tensor.data, DTYPES[tensor.datatype]).reshape(tensor.shape)
    array = np.empty(math.prod(tensor.shape), np.object_)
    array[:] = unpack_bytes(tensor.data, len(array))
    return array.reshape(tensor.shape)


def pack_bytes(elements: Iterable[object]) -> bytes:
    """Encode BYTES elements; text is written as UTF-8.

    Raises:
        ValueError: If an element is neither ``bytes`` nor ``str``.
    """
    parts: list[bytes] = []
    for element in elements:
        if isinstance(element, str):
            element = element.encode()  # noqa: PLW2901
        elif not isinstance(element, bytes):
            raise ValueError(f"a BYTES element is bytes or text, not {type(element).__name__}")
        parts += (_LENGTH.pack(len(element)), element)
    return b"".join(parts)


def bytes_ends(data: Buffer, count: int) -> list[int]:
    """Where each of ``count`` BYTES elements ends in ``data``.

    Raises:
        ValueError: If the lengths do not add up to the data exactly.
    """
    ends: list[int] = []
    position, size = 0, len(data)
    for _ in range(count):
        if position + _LENGTH.size > size:
            raise ValueError(f"{len(ends)} elements where {count} are due")
        position += _LENGTH.size + _LENGTH.unpack_from(data, position)[0]
        if position > size:
            raise ValueError(f"element {len(ends)} reaches past the end of the data")
        ends.append(position)
    if position != size:
        raise ValueError(f"{size - position} bytes left over after {count} elements")
    return ends


def unpack_bytes(data: Buffer, count: int) -> list[bytes]:
    """Decode ``count`` BYTES elements.

    Raises:
        ValueError: If the lengths do not add up to the data exactly.
    """
    view, start, elements = memoryview(data), 0, []
    for end in bytes_ends(data, count):
        elements.append(bytes(view[start + _LENGTH.size : end]))
        start = end
    return elements
