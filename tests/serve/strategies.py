"""Random tensors."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from treadle.serve.tensors import DTYPES, Array

NUMERIC = [name for name in DTYPES if name != "BYTES"]

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)

SOME_BYTES = st.binary(max_size=12) | st.just(b"") | st.just(b"\x00") | st.just(b"x" * 70000)


@st.composite
def numeric_arrays(draw: st.DrawFn, datatype: str | None = None) -> Array:
    """Any bit pattern is a value of a numeric type; BOOL has two."""
    name = datatype or draw(st.sampled_from(NUMERIC))
    shape, dtype = draw(SHAPES), DTYPES[name]
    count = math.prod(shape)
    if name == "BOOL":
        bits = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return np.array(bits, np.bool_).reshape(shape)
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    return np.frombuffer(data, dtype).reshape(shape)


@st.composite
def bytes_arrays(draw: st.DrawFn) -> Array:
    shape = draw(SHAPES)
    count = math.prod(shape)
    elements = draw(st.lists(SOME_BYTES, min_size=count, max_size=count))
    array = np.empty(count, np.object_)
    array[:] = elements
    return array.reshape(shape)


ARRAYS = numeric_arrays() | bytes_arrays()


def is_finite(array: Array) -> Array:
    """Where a float array is finite; signalling NaNs do not make this warn."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.isfinite(array))
