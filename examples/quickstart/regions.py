"""Connected regions of a black-and-white picture, with nothing but NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Regions(NamedTuple):
    """What is known of each connected region, from the topmost on. All of shape ``[regions]``."""

    left: NDArray[np.int64]
    top: NDArray[np.int64]
    right: NDArray[np.int64]
    """The column after the last one."""
    bottom: NDArray[np.int64]
    """The row after the last one."""
    area: NDArray[np.float64]
    """How many pixels belong to it."""
    mean: NDArray[np.float64]
    """Mean over these pixels of the values handed in."""


def find_regions(mask: NDArray[np.bool_], values: NDArray[np.float32]) -> Regions:
    """Find the regions of ``mask``, where pixels that share an edge or a corner are connected.

    Works on runs, the unbroken stretches of a row, of which there are far fewer than pixels.

    Args:
        mask: What belongs to any region; shape ``[height, width]``.
        values: A value for each pixel, to be averaged; shape ``[height, width]``.
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)  # in the same order, so start i and end i make a run
    labels, count = _label_runs(rows, starts, ends, width=mask.shape[1])

    left, top = (np.full(count, np.iinfo(np.int64).max) for _ in range(2))
    right, bottom = (np.zeros(count, dtype=np.int64) for _ in range(2))
    np.minimum.at(left, labels, starts)
    np.minimum.at(top, labels, rows)
    np.maximum.at(right, labels, ends)
    np.maximum.at(bottom, labels, rows + 1)

    area, total = np.zeros(count), np.zeros(count)
    sums = np.pad(np.cumsum(values, axis=1, dtype=np.float64), ((0, 0), (1, 0)))
    np.add.at(area, labels, ends - starts)
    np.add.at(total, labels, sums[rows, ends] - sums[rows, starts])
    return Regions(left, top, right, bottom, area, mean=total / area)


def _label_runs(
    rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], int]:
    """Number the regions that touching runs make up.

    Args:
        rows: The row of each run, in ascending order; shape ``[runs]``, as the next two.
        starts: Its first column; ascending within a row.
        ends: The column after its last one.
        width: Of the picture, in pixels.

    Returns:
        The region of each run, and how many regions there are.
    """
    # Rows put end to end make one long line, on which the runs of the row above that a run
    # touches are those between two points. The gap keeps the ends of different rows apart.
    stride = width + 2
    above = (rows - 1) * stride
    first = np.searchsorted(rows * stride + ends, above + starts, side="left")
    last = np.searchsorted(rows * stride + starts, above + ends, side="right")

    parents = list(range(len(rows)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]  # halves the path for the next search
            run = parents[run]
        return run

    for run, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        for touching in range(begin, end):
            one, other = sorted((root(run), root(touching)))
            parents[other] = one

    roots, labels = np.unique([root(run) for run in range(len(rows))], return_inverse=True)
    return labels, len(roots)
