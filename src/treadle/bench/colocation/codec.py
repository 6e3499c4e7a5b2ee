"""Times as compact text, so that thousands of them fit a line of a results file.

A microsecond is the resolution: far below what is measured, and half the size of floats.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MICROSECONDS = 1e6
_STORED = np.dtype("<i4")
_LIMIT = float(np.iinfo(_STORED).max)


def pack(seconds: ArrayLike) -> str:
    """Encode times in seconds, of up to 35 minutes, rounded to 1 us; longer ones are cut off."""
    rounded = np.rint(np.asarray(seconds, np.float64) * _MICROSECONDS)
    stored = np.clip(rounded, -_LIMIT, _LIMIT).astype(_STORED)
    return base64.b64encode(zlib.compress(stored.tobytes(), 9)).decode("ascii")


def unpack(text: str) -> NDArray[np.float64]:
    """Decode what ``pack`` made.

    Raises:
        ValueError: If the text is no such encoding.
    """
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True))
        return np.frombuffer(raw, _STORED).astype(np.float64) / _MICROSECONDS
    except zlib.error as error:
        raise ValueError(f"not packed times: {error}") from error
