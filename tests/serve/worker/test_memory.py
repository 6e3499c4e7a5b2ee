"""Batches that do not fit into a device's memory."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.serve.tensors import Array
from treadle.serve.worker.memory import has_spoilt_the_device, run_in_memory
from treadle.types import TensorSpec


class OutOfMemoryError(RuntimeError):
    """As PyTorch calls it."""


class Small:
    """A model that has room for so many rows, once it has freed what it keeps."""

    inputs = outputs = (TensorSpec("x", "FP32", (-1,)),)

    def __init__(self, room: int, kept: int = 0) -> None:
        self.room, self.kept = room, kept
        self.sizes: list[int] = []

    def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
        rows = len(inputs["x"])
        self.sizes.append(rows)
        if rows + self.kept > self.room:
            raise OutOfMemoryError("CUDA out of memory")
        return {"y": inputs["x"] * 2}

    def free_memory(self) -> None:
        self.kept = 0


# room, kept, rows -> sizes tried, rows that fitted
CASES = [
    (8, 0, 8, [8], 0),
    (8, 3, 8, [8, 8], 0),  # once more is enough
    (4, 0, 8, [8, 8, 4, 4], 4),
    (2, 0, 8, [8, 8, 4, 4, 2, 2, 4, 4, 2, 2], 2),
    (3, 0, 5, [5, 5, 3, 2], 3),
]


@pytest.mark.parametrize(("room", "kept", "rows", "sizes", "fitted"), CASES)
def test_a_batch_runs_as_far_as_it_goes(
    room: int, kept: int, rows: int, sizes: list[int], fitted: int
) -> None:
    model, x = Small(room, kept), np.arange(rows, dtype=np.float32)
    outputs, found = run_in_memory(model, {"x": x}, rows)
    assert outputs["y"].tolist() == (2 * x).tolist()
    assert found == fitted or (fitted and found <= fitted)
    assert model.sizes == sizes


@pytest.mark.parametrize(("room", "rows"), [(0, 1), (0, 4), (4, None)])
def test_what_fits_in_no_way_fails(room: int, rows: int | None) -> None:
    x = np.zeros(rows or 5, np.float32)
    with pytest.raises(OutOfMemoryError):
        run_in_memory(Small(room), {"x": x}, rows)


# error -> whether nothing can run after it
ERRORS = [
    (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
    (OutOfMemoryError("CUDA out of memory"), False),
    (RuntimeError("CUDA error: out of memory"), False),
    (RuntimeError("shapes do not fit"), False),
    (ValueError("CUDA error"), False),
]


@pytest.mark.parametrize(("error", "spoilt"), ERRORS)
def test_what_spoils_a_device(error: Exception, *, spoilt: bool) -> None:
    assert has_spoilt_the_device(error) is spoilt
