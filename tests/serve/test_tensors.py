"""Tensors in wire form: what goes in comes out, and lies about lengths are found."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.serve.tensors import (
    DTYPES,
    Array,
    Tensor,
    bytes_ends,
    datatype_of,
    fixed_nbytes,
    from_array,
    pack_bytes,
    raw_bytes,
    to_array,
    unpack_bytes,
)

from .strategies import ARRAYS, NUMERIC, SOME_BYTES

ITEM_BYTES = {
    name: nbytes
    for nbytes, names in {
        1: "BOOL UINT8 INT8",
        2: "UINT16 INT16 FP16 BF16",
        4: "UINT32 INT32 FP32",
        8: "UINT64 INT64 FP64",
    }.items()
    for name in names.split()
}


def texts(*elements: bytes) -> Array:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array


def test_every_protocol_datatype_is_known_with_its_size() -> None:
    assert set(DTYPES) == {*ITEM_BYTES, "BYTES"}
    assert {name: DTYPES[name].itemsize for name in NUMERIC} == ITEM_BYTES


@pytest.mark.parametrize("datatype", NUMERIC)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,), (2, 0, 3), (1, 1, 1, 1)])
def test_numbers_survive(datatype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(DTYPES[datatype])
    tensor = from_array("x", array)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, shape)
    assert len(tensor.data) == fixed_nbytes(datatype, shape)
    back = to_array(tensor)
    assert (back.dtype, back.shape) == (array.dtype, shape)
    assert back.tolist() == array.tolist()


# The wire is little-endian, whatever the machine: known values in known bytes.
WIRE = [
    ("BOOL", [True, False], "0100"),
    ("UINT8", [1, 255], "01ff"),
    ("INT16", [1, -2], "0100feff"),
    ("UINT32", [1, 2**31], "0100000000000080"),
    ("INT64", [-2], "feffffffffffffff"),
    ("FP16", [1.0, -2.0], "003c00c0"),
    ("FP32", [1.0, -2.0], "0000803f000000c0"),
    ("FP64", [1.0], "000000000000f03f"),
    ("BF16", [1.0, -2.0], "803f00c0"),
]


@pytest.mark.parametrize(("datatype", "values", "wire"), WIRE)
def test_the_bytes_on_the_wire(datatype: str, values: list[float], wire: str) -> None:
    tensor = from_array("x", np.array(values, DTYPES[datatype]))
    assert bytes(tensor.data).hex() == wire
    assert to_array(Tensor("x", datatype, (len(values),), bytes.fromhex(wire))).tolist() == values


@given(ARRAYS)
def test_any_tensor_survives(array: Array) -> None:
    tensor = from_array("x", array)
    back = to_array(tensor)
    assert (back.dtype, back.shape, tensor.shape) == (array.dtype, array.shape, array.shape)
    if array.dtype == np.object_:
        assert back.tolist() == array.tolist()
    else:
        assert back.tobytes() == array.tobytes()  # bit by bit: NaN is not equal to itself


@pytest.mark.parametrize("datatype", NUMERIC)
def test_arrays_that_are_not_contiguous_travel_in_row_major_order(datatype: str) -> None:
    whole = (np.arange(24).reshape(4, 6) % 2).astype(DTYPES[datatype])
    for view in (whole.T, whole[::2, ::3], whole[::-1], whole[:, 1:2], np.asfortranarray(whole)):
        back = to_array(from_array("x", view))
        assert back.tolist() == view.tolist()


def test_contiguous_arrays_are_not_copied() -> None:
    array = np.zeros(4, np.float32)
    tensor = from_array("x", array)
    array[2] = 7
    assert to_array(tensor).tolist() == [0, 0, 7, 0]


@pytest.mark.parametrize(
    "elements",
    [
        [b""],
        [b"", b"", b""],
        [b"\x00", b"ends with zero\x00"],
        [b"\xff\xfe not text"],
        [b"x" * (1 << 20), b"", b"y"],
        ["größer".encode(), "🙂".encode()],
    ],
)
def test_bytes_survive(elements: list[bytes]) -> None:
    tensor = from_array("x", texts(*elements))
    assert tensor.datatype == "BYTES"
    assert len(tensor.data) == sum(4 + len(element) for element in elements)
    assert to_array(tensor).tolist() == elements


def test_each_element_is_preceded_by_its_length_in_four_little_endian_bytes() -> None:
    assert pack_bytes([b"ab", b"", "é"]) == b"\x02\0\0\0ab" + b"\0\0\0\0" + b"\x02\0\0\0\xc3\xa9"


@pytest.mark.parametrize("array", [np.array([["a", "bc"]]), np.array([[b"a", b"bc"]])])
def test_numpy_strings_are_bytes(array: Array) -> None:
    tensor = from_array("x", array)
    assert (tensor.datatype, tensor.shape) == ("BYTES", (1, 2))
    assert to_array(tensor).tolist() == [[b"a", b"bc"]]


@pytest.mark.parametrize("element", [1, None, 1.5, bytearray(b"x"), [b"x"]])
def test_a_bytes_element_is_bytes_or_text(element: object) -> None:
    with pytest.raises(ValueError, match=f"bytes or text, not {type(element).__name__}"):
        pack_bytes([b"good", element])


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", ">f4", "longdouble", "V3"])
def test_other_types_have_no_protocol_name(dtype: str) -> None:
    with pytest.raises(ValueError, match="no protocol datatype holds"):
        datatype_of(dtype)


@pytest.mark.parametrize(
    ("dtype", "datatype"), [("longlong", "INT64"), ("intc", "INT32"), ("O", "BYTES")]
)
def test_other_names_of_the_same_type_are_known(dtype: str, datatype: str) -> None:
    assert datatype_of(dtype) == datatype


@pytest.mark.parametrize("nbytes", [0, 4, 11, 13, 16, 24])
def test_data_that_does_not_fill_the_shape_is_refused(nbytes: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_array(Tensor("x", "FP32", (3,), bytes(nbytes)))


def test_the_size_of_bytes_is_not_fixed() -> None:
    assert fixed_nbytes("BYTES", (2, 3)) is None
    assert fixed_nbytes("FP64", ()) == 8
    assert fixed_nbytes("INT16", (2**40, 2**40)) == 2**81


@given(st.lists(SOME_BYTES, max_size=8))
def test_the_ends_cut_the_elements_out(elements: list[bytes]) -> None:
    data = pack_bytes(elements)
    ends = bytes_ends(data, len(elements))
    starts = [0, *ends[:-1]]
    assert [data[s + 4 : e] for s, e in zip(starts, ends, strict=False)] == elements
    assert unpack_bytes(memoryview(data), len(elements)) == elements


def length(nbytes: int) -> bytes:
    return struct.pack("<I", nbytes)


# data, elements due, what the error says
LIES = [
    (b"", 1, "0 elements where 1 are due"),
    (length(1) + b"a", 2, "1 elements where 2 are due"),
    (length(1) + b"a" + b"\0\0\0", 2, "1 elements where 2 are due"),
    (length(2) + b"a", 1, "element 0 reaches past the end of the data"),
    (length(1) + b"a" + length(2**32 - 1), 2, "element 1 reaches past the end of the data"),
    (length(1) + b"ab", 1, "1 bytes left over after 1 elements"),
    (b"abc", 0, "3 bytes left over after 0 elements"),
    (length(0) * 3, 2, "4 bytes left over after 2 elements"),
    (length(0) * 3, 2**48, "3 elements where"),
]


@pytest.mark.parametrize(("data", "count", "error"), LIES)
def test_lies_about_lengths_are_found(data: bytes, count: int, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        bytes_ends(data, count)
    with pytest.raises(ValueError, match=error):
        unpack_bytes(data, count)


@given(st.binary(max_size=40), st.integers(0, 5))
def test_random_data_is_either_exactly_so_many_elements_or_refused(data: bytes, count: int) -> None:
    try:
        elements = unpack_bytes(data, count)
    except ValueError:
        return
    assert pack_bytes(elements) == data
    assert len(elements) == count


def test_raw_bytes_is_a_view() -> None:
    array = np.zeros((2, 2), np.uint16)
    view = raw_bytes(array)
    array[1, 1] = 0x0201
    assert bytes(view) == b"\0\0\0\0\0\0\x01\x02"
