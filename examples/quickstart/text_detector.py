"""Finds the text in a picture: PaddleOCR's PP-OCRv6 detector (small), as ``rapidocr`` ships it.

The network is a Differentiable Binarization net (Liao et al., AAAI 2020): for each pixel it says
how likely it belongs to the core of a line of text. Cores are thinner than the text, so that close
lines stay apart, and are grown again afterwards. The constants are those of ``rapidocr``. Unlike
``rapidocr``, which turns its boxes to fit slanted text, this reports upright ones: that takes
NumPy only, no OpenCV.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx_model import open_session, package_file
from regions import find_regions

from treadle import ModelContext, TensorSpec

SHORT_SIDE = 736
"""Pixels that the short side is enlarged to, if it has fewer."""
LONG_SIDE = 2_000
"""Pixels that the long side never exceeds: it bounds the time and memory of a request."""
STEP = 32
"""The network takes sides that are multiples of this many pixels."""

PIXEL_THRESHOLD = 0.3
"""Probability from which on a pixel belongs to text."""
BOX_THRESHOLD = 0.5
"""Mean probability from which on a region is reported."""
GROWTH = 1.6
"""How far cores are grown, in units of area / perimeter."""
SMALLEST_SIDE = 3
"""Regions narrower than this many pixels are specks."""


class TextDetector:
    """``image`` UINT8 [height, width, 3] to ``boxes`` FP32 [n, 4] and ``scores`` FP32 [n].

    ``image`` is RGB. A box is left, top, right and bottom in pixels of the image, from the topmost
    box on; its score is the mean probability of text within. As every image has its own number of
    boxes, there is no batch: use it with ``max_batch = 1``.
    """

    def __init__(self, context: ModelContext) -> None:
        self.inputs = [TensorSpec("image", "UINT8", (-1, -1, 3))]
        self.outputs = [TensorSpec("boxes", "FP32", (-1, 4)), TensorSpec("scores", "FP32", (-1,))]
        model = package_file("rapidocr", "models", "PP-OCRv6_det_small.onnx")
        self._session = open_session(model, context.threads)

    def __call__(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        image = inputs["image"]
        height, width, _ = image.shape
        if image.size == 0:
            raise ValueError(f"image is {width} by {height} pixels; at least 1 by 1 is needed")

        pixels = resize(image[:, :, ::-1], *network_size(height, width))  # trained on BGR
        pixels = pixels / 127.5 - 1
        (probability,) = self._session.run(None, {"x": pixels.transpose(2, 0, 1)[np.newaxis]})

        boxes, scores = find_boxes(probability[0, 0])
        map_height, map_width = probability.shape[2:]
        boxes *= np.array([width / map_width, height / map_height] * 2)
        boxes = boxes.clip(0, [width, height] * 2)
        return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


def network_size(height: int, width: int) -> tuple[int, int]:
    """Choose the height and width at which the network looks at an image."""
    ratio = max(1.0, SHORT_SIDE / min(height, width))
    ratio = min(ratio, LONG_SIDE / max(height, width))

    def snap(side: int) -> int:
        return max(1, round(side * ratio / STEP)) * STEP

    return snap(height), snap(width)


def resize(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
    """Resize by linear interpolation between pixel centres, as OpenCV's ``INTER_LINEAR`` does.

    Args:
        image: Shape ``[old height, old width, channels]``.
        height: New height in pixels.
        width: New width in pixels.

    Returns:
        Shape ``[height, width, channels]``, in the range of ``image``.
    """
    pixels = image.astype(np.float32)
    for axis, size in enumerate((height, width)):
        old_size = image.shape[axis]
        position = np.clip((np.arange(size) + 0.5) * old_size / size - 0.5, 0, old_size - 1)
        before = position.astype(np.int64)
        after = np.minimum(before + 1, old_size - 1)
        weight = np.expand_dims((position - before).astype(np.float32), (1, 2) if axis == 0 else 1)
        near, far = np.take(pixels, before, axis), np.take(pixels, after, axis)
        pixels = near + (far - near) * weight
    return pixels


def find_boxes(
    probability: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn the network's map into boxes.

    Args:
        probability: That a pixel is text; shape ``[height, width]``.

    Returns:
        Boxes (left, top, right, bottom) in pixels of the map, shape ``[n, 4]``, and their scores,
        shape ``[n]``.
    """
    mask = probability > PIXEL_THRESHOLD
    # A pixel of ink to the right and below closes hairline gaps.
    mask[:, 1:] |= mask[:, :-1].copy()
    mask[1:] |= mask[:-1].copy()

    found = find_regions(mask, probability)
    width, height = found.right - found.left, found.bottom - found.top
    growth = GROWTH * found.area / (2 * (width + height))
    boxes = np.stack(
        (found.left - growth, found.top - growth, found.right + growth, found.bottom + growth),
        axis=1,
    )
    kept = (np.minimum(width, height) >= SMALLEST_SIDE) & (found.mean >= BOX_THRESHOLD)
    return boxes[kept], found.mean[kept]
