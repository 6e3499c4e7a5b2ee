"""A treadle model that gives back the tensor that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from treadle import ModelContext, TensorSpec

Tensors = Mapping[str, NDArray[Any]]


class Identity:
    """Takes a batch of rows of any length."""

    inputs = (TensorSpec("input", "FP32", (-1, -1)),)
    outputs = (TensorSpec("output", "FP32", (-1, -1)),)

    def __call__(self, tensors: Tensors) -> Tensors:
        return {"output": tensors["input"]}


def load(context: ModelContext) -> Identity:
    return Identity()
