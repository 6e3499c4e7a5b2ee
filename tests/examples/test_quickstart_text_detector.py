from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from regions import find_regions
from samples import pages
from text_detector import TextDetector, network_size, resize


def ask(model: TextDetector, image: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any]]:
    outputs = model({"image": image})
    return outputs["boxes"], outputs["scores"]


def overlap(one: pages.Box, other: pages.Box) -> float:
    """The share of ``one`` that lies within ``other``."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, width) * max(0, height) / ((one[2] - one[0]) * (one[3] - one[1]))


@pytest.mark.parametrize(
    ("name", "draw"), [("receipt.png", pages.receipt), ("page.png", pages.page)]
)
def test_boxes_are_where_text_is_and_nowhere_else(
    text_detector: TextDetector, inputs: Path, name: str, draw: Callable[[], pages.Page]
) -> None:
    boxes, scores = ask(text_detector, np.asarray(Image.open(inputs / name).convert("RGB")))
    lines = draw().lines
    assert len(boxes) == len(lines)
    assert all(max(overlap(line, box) for box in boxes) > 0.9 for line in lines)
    assert all(max(overlap(box, line) for line in lines) > 0.5 for box in boxes)
    assert (scores > 0.5).all()
    assert (scores <= 1).all()
    assert (np.diff(boxes[:, 1]) > -10).all(), "from the topmost on"


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 4_000, 3), (5_000, 2, 3), (40, 60, 3)])
def test_an_image_without_text_has_no_boxes(
    text_detector: TextDetector, shape: tuple[int, ...]
) -> None:
    boxes, scores = ask(text_detector, np.full(shape, 255, dtype=np.uint8))
    assert (boxes.shape, scores.shape) == ((0, 4), (0,))


def test_an_image_without_pixels_is_refused(text_detector: TextDetector) -> None:
    with pytest.raises(ValueError, match="image is 5 by 0 pixels"):
        ask(text_detector, np.zeros((0, 5, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((736, 736), (736, 736)),
        ((368, 500), (736, 992)),
        ((900, 1_200), (896, 1_216)),
        ((4_000, 2_000), (1_984, 992)),
        ((10, 10_000), (32, 1_984)),
        ((1, 1), (736, 736)),
    ],
)
def test_the_network_sees_a_bounded_number_of_pixels(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert network_size(*size) == expected


def test_resizing_interpolates_between_pixel_centres() -> None:
    image = np.array([[0, 100]], dtype=np.uint8)[..., np.newaxis]
    np.testing.assert_allclose(resize(image, 2, 4)[..., 0], [[0, 25, 75, 100]] * 2)
    np.testing.assert_array_equal(resize(image, 1, 2), image)


def test_regions_are_connected_along_edges_and_corners() -> None:
    picture = [
        "##...#.#",
        "..#..###",
        "#.......",
        "##.#.#.#",
        ".#..#.#.",
    ]
    mask = np.array([[pixel == "#" for pixel in row] for row in picture])
    rows = np.arange(5, dtype=np.float32)[:, np.newaxis] * np.ones(8, dtype=np.float32)
    found = find_regions(mask, rows)
    assert np.stack(found[:4], axis=1).tolist() == [
        [0, 0, 3, 2],
        [5, 0, 8, 2],
        [0, 2, 2, 5],
        [3, 3, 8, 5],
    ]
    assert found.area.tolist() == [3, 5, 4, 5]
    np.testing.assert_allclose(found.mean, [1 / 3, 3 / 5, 3, 3.4])


def test_a_blank_picture_has_no_regions() -> None:
    found = find_regions(np.zeros((4, 5), dtype=np.bool_), np.zeros((4, 5), dtype=np.float32))
    assert [len(column) for column in found] == [0] * 6
