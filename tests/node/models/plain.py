"""Models that do as they should."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treadle import ModelContext, TensorSpec

Arrays = dict[str, npt.NDArray[Any]]


class Echo:
    """Returns ``x`` as ``y``; its datatype is the parameter ``datatype``, its rank ``rank``."""

    def __init__(self, context: ModelContext) -> None:
        shape = (-1,) * context.parameters.get("rank", 2)
        self.inputs = [TensorSpec("x", context.parameters["datatype"], shape)]
        self.outputs = [TensorSpec("y", context.parameters["datatype"], shape)]

    def __call__(self, inputs: Arrays) -> Arrays:
        return {"y": inputs["x"]}


class SumAndDifference:
    """Two inputs, two outputs."""

    inputs = (TensorSpec("a", "FP32", (-1, 4)), TensorSpec("b", "FP32", (-1, 4)))
    outputs = (TensorSpec("sum", "FP32", (-1, 4)), TensorSpec("difference", "FP32", (-1, 4)))

    def __call__(self, inputs: Arrays) -> Arrays:
        return {"sum": inputs["a"] + inputs["b"], "difference": inputs["a"] - inputs["b"]}


class Zeros:
    """Returns as many zeros as it is asked for."""

    inputs = (TensorSpec("count", "INT64", (1,)),)
    outputs = (TensorSpec("zeros", "FP32", (-1,)),)

    def __call__(self, inputs: Arrays) -> Arrays:
        return {"zeros": np.zeros(int(inputs["count"][0]), np.float32)}


class Variables:
    """Returns the environment variable that it is asked for; empty if it is not set."""

    inputs = (TensorSpec("name", "BYTES", (1,)),)
    outputs = (TensorSpec("value", "BYTES", (1,)),)

    def __call__(self, inputs: Arrays) -> Mapping[str, npt.NDArray[Any]]:
        import os

        return {"value": np.array([os.environ.get(inputs["name"][0].decode(), "")])}


class Sizes:
    """The shape and the sum of what it is given; inputs are declared in the configuration."""

    def __call__(self, inputs: Arrays) -> Arrays:
        (x,) = inputs.values()
        return {"shape": np.array(x.shape), "sum": np.array([x.sum(dtype=np.float64)])}
