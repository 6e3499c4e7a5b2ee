"""Batches that do not fit into the device's memory, and errors that end a process's use of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treadle.serve.tensors import Array
from treadle.serve.worker.models import RunnableModel


def run_in_memory(
    model: RunnableModel, inputs: dict[str, Array], rows: int | None
) -> tuple[Mapping[str, Array], int]:
    """Run a batch; if memory runs out, once more, and then in halves.

    Args:
        model: What runs.
        inputs: Of the whole batch.
        rows: How many it has; None if it is not one that can be divided.

    Returns:
        The outputs, and the most rows that ran at once if not all did, else 0.
    """
    try:
        return model(dict(inputs)), 0
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    free = getattr(model, "free_memory", None)
    if free is not None:
        free()
    try:
        return model(dict(inputs)), 0
    except Exception as error:
        if not is_out_of_memory(error) or rows is None or rows < 2:
            raise
    half = (rows + 1) // 2
    first, fitted = run_in_memory(model, _rows(inputs, 0, half), half)
    second, also = run_in_memory(model, _rows(inputs, half, rows), rows - half)
    outputs = {name: np.concatenate([first[name], second[name]]) for name in first}
    return outputs, min(fitted or half, also or half)


def is_out_of_memory(error: Exception) -> bool:
    """Whether the device had no room: asked by name, so that nothing is imported for it."""
    return "OutOfMemory" in type(error).__name__ or (
        isinstance(error, RuntimeError | MemoryError) and "out of memory" in str(error).lower()
    )


def has_spoilt_the_device(error: Exception) -> bool:
    """Whether the error leaves a CUDA context in which nothing runs any more."""
    return not is_out_of_memory(error) and (
        type(error).__name__ == "AcceleratorError"
        or (isinstance(error, RuntimeError) and "CUDA error" in str(error))
    )


def _rows(inputs: Mapping[str, Array], first: int, last: int) -> dict[str, Array]:
    return {name: array[first:last] for name, array in inputs.items()}
