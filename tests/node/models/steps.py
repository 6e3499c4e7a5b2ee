"""Models that tell in which order they ran, and that can be held up."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from treadle import ModelContext, TensorSpec

Int64s = npt.NDArray[np.int64]


class Step:
    """Adds one to every x.

    Notes each batch as a line in the file ``ran``, then waits as long as the file named by its
    parameter ``gate`` is there, then sleeps for its parameter ``seconds``.
    """

    inputs = (TensorSpec("x", "INT64", (-1, 1)),)
    outputs = (TensorSpec("y", "INT64", (-1, 1)),)

    def __init__(self, context: ModelContext) -> None:
        self._name = context.name
        self._ran = context.folder / "ran"
        self._gate = context.folder / "gates" / context.parameters.get("gate", context.name)
        self._seconds = context.parameters.get("seconds", 0.0)
        _wait_while((context.folder / "gates" / f"load-{context.name}").exists)

    def __call__(self, inputs: dict[str, Int64s]) -> dict[str, Int64s]:
        x = inputs["x"]
        with self._ran.open("a") as file:
            file.write(f"{self._name}: {' '.join(map(str, x.ravel().tolist()))}\n")
        _wait_while(self._gate.exists)
        time.sleep(self._seconds)
        return {"y": x + 1}


def _wait_while(condition: Callable[[], bool]) -> None:
    while condition():
        time.sleep(0.002)
