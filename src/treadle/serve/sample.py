"""A small request to paste."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from treadle.serve.tensors import DTYPES, Array, Tensor, from_array
from treadle.types import TensorSpec

_MOST_ELEMENTS = 16
_FLOATS = frozenset(("FP16", "BF16", "FP32", "FP64"))


def sample_body(inputs: Sequence[TensorSpec]) -> str:
    """A JSON request body with the smallest inputs a model takes; empty if those are large."""
    entries = []
    for spec in inputs:
        shape = [1 if size == -1 else size for size in spec.shape]
        count = math.prod(shape)
        if count > _MOST_ELEMENTS:
            return ""
        entries.append(
            {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": shape,
                "data": [_element(spec.datatype)] * count,
            }
        )
    return orjson.dumps({"inputs": entries}).decode() if entries else ""


def sample_inputs(inputs: Sequence[TensorSpec], rows: int) -> list[Tensor]:
    """Inputs of so many rows: numbers from 0 to 1, zeros where numbers are whole, or short texts.

    Dimensions of any size are 1, but for the first, which has the rows.
    """
    made, random = [], np.random.default_rng(0)
    for spec in inputs:
        shape = [1 if size == -1 else size for size in spec.shape]
        if spec.shape and spec.shape[0] == -1:
            shape[0] = rows
        array: Array
        if spec.datatype == "BYTES":
            array = np.full(shape, b"treadle", np.object_)
        elif spec.datatype in _FLOATS:
            array = random.random(shape, np.float32).astype(DTYPES[spec.datatype])
        else:
            array = np.zeros(shape, DTYPES[spec.datatype])
        made.append(from_array(spec.name, array))
    return made


def _element(datatype: str) -> Any:
    match datatype:
        case "BYTES":
            return "import os\n\nprint(os.getcwd())\n"
        case "BOOL":
            return True
        case _:
            return 1
