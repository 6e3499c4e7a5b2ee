"""The Open Inference Protocol's binary tensors, as a server that has no such thing takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

Array = NDArray[Any]

HEADER_LENGTH = "Inference-Header-Content-Length"
DTYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "INT64": np.dtype("<i8")}
_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


def decode(body: bytes, header_nbytes: int | None) -> dict[str, Array]:
    """The inputs of a request by name, binary or as JSON; binary ones lie in ``body``.

    Args:
        body: Of the request.
        header_nbytes: How many of its bytes are JSON; None: all.
    """
    end = len(body) if header_nbytes is None else header_nbytes
    arrays = {}
    for entry in orjson.loads(body[:end])["inputs"]:
        dtype, nbytes = DTYPES[entry["datatype"]], _binary_nbytes(entry)
        if nbytes is None:
            array = np.array(entry["data"], dtype)
        else:
            array = np.frombuffer(body, dtype, nbytes // dtype.itemsize, end)
            end += nbytes
        arrays[entry["name"]] = array.reshape(entry["shape"])
    return arrays


def encode(model: str, outputs: Mapping[str, Array]) -> tuple[bytes, int]:
    """An answer with binary tensors, and how many of its bytes are JSON."""
    header = orjson.dumps(
        {
            "model_name": model,
            "outputs": [
                {
                    "name": name,
                    "datatype": _DATATYPES[array.dtype],
                    "shape": array.shape,
                    "parameters": {"binary_data_size": array.nbytes},
                }
                for name, array in outputs.items()
            ],
        }
    )
    return b"".join([header, *(array.tobytes() for array in outputs.values())]), len(header)


def _binary_nbytes(entry: Mapping[str, Any]) -> int | None:
    nbytes: int | None = entry.get("parameters", {}).get("binary_data_size")
    return nbytes
