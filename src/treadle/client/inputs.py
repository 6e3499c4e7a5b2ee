"""Turns files and text into the tensors that a model takes."""

from __future__ import annotations

import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from treadle.errors import InvalidRequestError, TreadleError
from treadle.serve.oip import decode_request
from treadle.serve.tensors import DTYPES, Array, Tensor, from_array

_PICTURES = frozenset({".png", ".jpg", ".jpeg"})


def read_inputs(metadata: Mapping[str, Any], values: Sequence[str]) -> list[Tensor]:
    """Make the inputs of one request.

    Args:
        metadata: The model's metadata, as the node gives it.
        values: ``NAME=VALUE``, or just ``VALUE`` where the model has one input. A value is a
            file or JSON text. A single ``.json`` file is a whole request body.

    Raises:
        InvalidRequestError: If they do not fit the model, or a file cannot be read.
    """
    if len(values) == 1 and values[0].endswith(".json"):
        return decode_request(_read(Path(values[0])), None).inputs
    specs = {spec["name"]: spec for spec in metadata["inputs"]}
    tensors = []
    for value in values:
        name, given = _split(value, list(specs))
        tensors.append(_tensor(specs[name], given))
    return tensors


def synthetic_inputs(metadata: Mapping[str, Any]) -> list[Tensor]:
    """Zeros of the smallest shape that a model takes; for BYTES, a short text."""
    tensors = []
    for spec in metadata["inputs"]:
        shape = tuple(1 if size == -1 else size for size in spec["shape"])
        array: Array = np.zeros(shape, DTYPES[spec["datatype"]])
        if spec["datatype"] == "BYTES":
            array[...] = b"treadle"
        tensors.append(from_array(spec["name"], array))
    return tensors


def _split(value: str, names: list[str]) -> tuple[str, str]:
    name, equals, given = value.partition("=")
    if equals and name in names:
        return name, given
    if len(names) == 1:
        return names[0], value
    raise InvalidRequestError(
        f"--input {value!r}: say which input it is, as NAME=VALUE; inputs: {', '.join(names)}"
    )


def _tensor(spec: Mapping[str, Any], given: str) -> Tensor:
    name, datatype, rank = spec["name"], spec["datatype"], len(spec["shape"])
    path = Path(given)
    try:
        array = _load(path, datatype) if path.is_file() else _parse(given, datatype)
    except (ValueError, OSError, EOFError, wave.Error) as error:
        raise InvalidRequestError(f"input '{name}': {given}: {error}") from error
    if array.ndim == rank - 1:
        array = array[None]  # a batch of one
    if array.dtype != DTYPES[datatype]:
        array = array.astype(DTYPES[datatype])
    return from_array(name, array)


def _load(path: Path, datatype: str) -> Array:
    """A file as an array, by its ending."""
    ending = path.suffix.lower()
    if datatype != "BYTES":
        if ending == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        if ending == ".wav":
            return _read_wav(path)
        if ending in _PICTURES:
            return _read_picture(path)
    return _text(_read(path))


def _parse(given: str, datatype: str) -> Array:
    """JSON, or for BYTES any text."""
    if datatype == "BYTES":
        return _text(given.encode())
    try:
        return np.array(orjson.loads(given), DTYPES[datatype])
    except orjson.JSONDecodeError:
        raise ValueError("neither a file nor JSON") from None


def _text(content: bytes) -> Array:
    array = np.empty((), np.object_)
    array[()] = content
    return array


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error


def _read_wav(path: Path) -> Array:
    """16-bit PCM as samples in [-1, 1], channels averaged. Shape: ``[samples]``."""
    with wave.open(str(path), "rb") as file:
        if file.getsampwidth() != 2:
            raise ValueError(f"{8 * file.getsampwidth()}-bit samples; allowed: 16-bit PCM")
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        channels = samples.reshape(-1, file.getnchannels())
    return np.asarray(channels.mean(axis=1) / 32768, np.float32)


def _read_picture(path: Path) -> Array:
    """RGB. Shape: ``[height, width, 3]``, UINT8."""
    try:
        from PIL import Image
    except ImportError:
        raise TreadleError("pictures need Pillow: pip install 'treadle[images]'") from None
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
