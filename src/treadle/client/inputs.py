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

_SHOWN_CHARS = 200
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
    names = [spec["name"] for spec in metadata["inputs"]]
    if len(values) == 1 and values[0].endswith(".json") and not _names_input(values[0], names):
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


def _names_input(value: str, names: list[str]) -> bool:
    return value.partition("=")[0] in names and "=" in value


def _split(value: str, names: list[str]) -> tuple[str, str]:
    if _names_input(value, names):
        name, _, given = value.partition("=")
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
        array = _load(path, datatype) if _is_file(path) else _parse(given.encode(), datatype)
        if array.ndim == rank - 1:
            array = array[None]  # a batch of one
        return from_array(name, _as_datatype(array, datatype))
    except (ValueError, OSError, EOFError, wave.Error) as error:
        shown = given if len(given) <= _SHOWN_CHARS else given[:_SHOWN_CHARS] + "…"
        raise InvalidRequestError(f"input '{name}': {shown}: {error}") from error


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
        if ending == ".json":
            return _parse(_read(path), datatype)
        raise ValueError(
            f"a file with this ending gives BYTES; for {datatype} allowed are .npy, .json, .wav "
            "and pictures"
        )
    return _text(_read(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a name: it is a value
        return False


def _parse(given: bytes, datatype: str) -> Array:
    """JSON, or for BYTES any text."""
    if datatype == "BYTES":
        return _text(given)
    try:
        values = orjson.loads(given)
    except orjson.JSONDecodeError:
        raise ValueError("neither a file nor JSON") from None
    array: Array = np.array(values)
    if array.dtype.kind == "f":
        exact: Array = np.array(values, np.object_)
        if _holds_integers(exact):
            return exact  # large whole numbers, which as floats would not be what they were
    return array


def _holds_integers(array: Array) -> bool:
    """Whether an array of objects holds Python's integers and nothing else."""
    return array.dtype == np.object_ and all(type(v) is int for v in array.ravel().tolist())


def _as_datatype(array: Array, datatype: str) -> Array:
    """Convert an array where no value changes its meaning.

    Raises:
        ValueError: If one would.
    """
    dtype = DTYPES[datatype]
    if array.dtype == dtype or array.size == 0:  # BYTES arrays are of objects, and are so here
        return array.astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(np.dtype(dtype.name))
        if array.dtype.kind in "iu" or _holds_integers(array):
            fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
        else:  # the largest whole number may be none that a float has: the next one has no place
            fits = array.dtype.kind == "f" and bool(
                np.all(np.floor(array) == array)
                and array.min() >= limits.min
                and array.max() < float(int(limits.max) + 1)
            )
        if fits:
            return array.astype(dtype)
        raise ValueError(f"{datatype} takes whole numbers from {limits.min} to {limits.max}")
    if dtype.kind in "fV" and array.dtype.kind in "iufV":
        with np.errstate(over="ignore"):  # what is too large becomes infinite, as in C
            return array.astype(dtype)
    raise ValueError(f"not a value of {datatype}")


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
