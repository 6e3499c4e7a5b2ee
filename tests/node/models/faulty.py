"""Models that fail, each in its own way, when an x is 13. Any other x, they double."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from treadle import ModelContext, TensorSpec

UNLUCKY = 13


class Faulty:
    """Its parameter ``fault`` says what it does wrong."""

    inputs = (TensorSpec("x", "INT64", (-1, 1)),)
    outputs = (TensorSpec("y", "INT64", (-1, 1)),)

    def __init__(self, context: ModelContext) -> None:
        self._fault = context.parameters["fault"]

    def __call__(self, inputs: dict[str, npt.NDArray[np.int64]]) -> Any:
        y = inputs["x"] * 2
        if UNLUCKY not in inputs["x"]:
            return {"y": y}
        match self._fault:
            case "raises":
                raise RuntimeError("13 is unlucky")
            case "raises at length":
                raise RuntimeError("13 is unlucky " * 100_000)
            case "raises what is no text":
                raise RuntimeError("13 is unlucky \udcff")
            case "prints at length":
                print("x" * 10_000_000, end="")
                raise RuntimeError("13 is unlucky")
            case "hangs":
                time.sleep(3600)
            case "aborts":
                os.abort()
            case "exits":
                sys.exit("13 is unlucky")
            case "shape":
                return {"y": y.ravel()}
            case "datatype":
                return {"y": y.astype(np.float32)}
            case "missing":
                return {"z": y}
            case "rows":
                return {"y": np.concatenate([y, y])}
            case "list":
                return [y]
        return None
