"""A small request to paste."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson

from treadle.types import TensorSpec

_MOST_ELEMENTS = 16


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


def _element(datatype: str) -> Any:
    match datatype:
        case "BYTES":
            return "import os\n\nprint(os.getcwd())\n"
        case "BOOL":
            return True
        case _:
            return 1
