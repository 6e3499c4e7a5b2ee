"""Holds a request against what its model takes, before it may join a batch."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from msgspec import Struct

from treadle.errors import InvalidRequestError
from treadle.serve.model import ServedModel
from treadle.serve.padding import PaddingConfig
from treadle.serve.tensors import DTYPES, Buffer, Tensor, bytes_ends, fixed_nbytes
from treadle.types import TensorSpec

MAX_RANK = 32


class CheckedInputs(Struct, eq=False):
    """Inputs in the model's order, the rows they bring, and what may share a batch with them."""

    tensors: list[Tensor]
    rows: int
    batch_key: Hashable
    length: int | None = None
    """How long the inputs are that are padded."""
    bucket: int | None = None
    """How long they will be."""


def check_inputs(model: ServedModel, tensors: list[Tensor]) -> CheckedInputs:
    """Check names, datatypes, shapes and sizes.

    Raises:
        InvalidRequestError: Says which input is wrong, and what is expected.
    """
    specs = model.inputs
    if len(tensors) != len(specs):
        tensors = _in_order(model, tensors)
    shapes = []
    for spec, tensor in zip(specs, tensors, strict=True):
        if tensor.name != spec.name:
            return check_inputs(model, _in_order(model, tensors))
        _check_tensor(model, spec, tensor)
        shapes.append(tensor.shape[1:] if model.batched else tensor.shape)
    rows = _rows(model, tensors) if model.batched else 1
    padding = model.config.padding
    if padding is None:
        return CheckedInputs(tensors, rows, tuple(shapes))
    length = _length(padding, tensors)
    bucket = padding.bucket(length)
    if bucket is None:
        raise InvalidRequestError(
            f"the inputs {', '.join(padding.inputs)} are {length} long; model '{model.name}' "
            f"takes at most {padding.lengths[-1]}"
        )
    padded = [bucket.shape(tensor.name, tensor.shape)[1:] for tensor in tensors]
    return CheckedInputs(tensors, rows, tuple(padded), length, bucket.length)


def _in_order(model: ServedModel, tensors: list[Tensor]) -> list[Tensor]:
    """The inputs in the order in which the model declares them."""
    given = {tensor.name: tensor for tensor in tensors}
    if len(given) != len(tensors):
        raise InvalidRequestError(f"an input is given twice for model '{model.name}'")
    known = {spec.name for spec in model.inputs}
    for name in given:
        if name not in known:
            raise InvalidRequestError(
                f"unexpected inference input '{name}' for model '{model.name}'; "
                f"expected: {', '.join(sorted(known))}"
            )
    if len(given) != len(known):
        missing = ", ".join(sorted(known - given.keys()))
        raise InvalidRequestError(
            f"expected {len(known)} inputs but got {len(given)} inputs for model "
            f"'{model.name}'. Missing: {missing}"
        )
    return [given[spec.name] for spec in model.inputs]


def _check_tensor(model: ServedModel, spec: TensorSpec, tensor: Tensor) -> None:
    if tensor.datatype != spec.datatype:
        raise InvalidRequestError(
            f"inference input '{spec.name}' data-type is '{tensor.datatype}', "
            f"but model '{model.name}' expects '{spec.datatype}'"
        )
    fits = len(tensor.shape) == len(spec.shape)
    for want, got in zip(spec.shape, tensor.shape, strict=False):
        if want not in (-1, got):
            fits = False
    if not fits:
        raise InvalidRequestError(
            f"unexpected shape for input '{spec.name}' for model '{model.name}'. "
            f"Expected {_text(spec.shape)}, got {_text(tensor.shape)}"
        )


def check_data(tensor: Tensor, *, texts: bool = True) -> None:
    """Hold the data of an input against its datatype and shape.

    Args:
        tensor: The input.
        texts: Whether BYTES are taken at all: to walk them takes time.

    Raises:
        InvalidRequestError: If the data does not fill the shape, or is none of that datatype.
    """
    due = fixed_nbytes(tensor.datatype, tensor.shape)
    if due is None:
        if not texts:
            raise InvalidRequestError(
                f"input '{tensor.name}' is BYTES; this model takes no input of that type"
            )
        check_bytes(tensor, math.prod(tensor.shape))
    elif due != len(tensor.data):
        raise InvalidRequestError(
            f"input '{tensor.name}' has {len(tensor.data)} bytes of binary data; shape "
            f"{list(tensor.shape)} of {tensor.datatype} needs {due}"
        )
    elif tensor.datatype == "BOOL":
        check_truth_values(tensor.data, f"input '{tensor.name}'")


def check_truth_values(data: Buffer, where: str) -> None:
    """Check the bytes of BOOL elements.

    Raises:
        InvalidRequestError: If one is neither 0 nor 1.
    """
    if np.any(np.frombuffer(data, np.uint8) > 1):
        raise InvalidRequestError(f"{where} is BOOL; allowed bytes: 0 and 1")


def check_shape(name: str, datatype: str, shape: Sequence[int]) -> None:
    """Check what an input says of itself, before its data is looked at.

    Raises:
        InvalidRequestError: If there is no such datatype, or it has too many dimensions.
    """
    if datatype not in DTYPES:
        raise InvalidRequestError(
            f"input '{name}' has datatype '{datatype}'; allowed: {', '.join(DTYPES)}"
        )
    if len(shape) > MAX_RANK:
        raise InvalidRequestError(f"input '{name}' has {len(shape)} dimensions; at most {MAX_RANK}")


def check_bytes(tensor: Tensor, count: int) -> None:
    """Check the lengths inside the data of a BYTES tensor of ``count`` elements.

    Raises:
        InvalidRequestError: If they lie: they would reach into another caller's data.
    """
    try:
        bytes_ends(tensor.data, count)
    except ValueError as error:
        raise InvalidRequestError(f"input '{tensor.name}': {error}") from None


def _rows(model: ServedModel, tensors: Sequence[Tensor]) -> int:
    """The batch dimension, which all inputs share."""
    rows = tensors[0].shape[0]
    for tensor in tensors:
        if tensor.shape[0] != rows:
            raise InvalidRequestError(
                f"input '{tensor.name}' has batch dimension {tensor.shape[0]}, "
                f"input '{tensors[0].name}' has {rows}"
            )
    if not 1 <= rows <= model.config.max_batch:
        raise InvalidRequestError(
            f"batch dimension is {rows}; model '{model.name}' allows 1 to {model.config.max_batch}"
        )
    return rows


def _length(padding: PaddingConfig, tensors: Sequence[Tensor]) -> int:
    """How long the inputs are that are padded, all alike."""
    found: tuple[str, int] | None = None
    for tensor in tensors:
        axis = padding.inputs.get(tensor.name)
        if axis is None:
            continue
        length = tensor.shape[axis]
        if found is not None and found[1] != length:
            raise InvalidRequestError(
                f"input '{tensor.name}' is {length} long, input '{found[0]}' is {found[1]}; "
                "they are padded together and must be equally long"
            )
        found = (tensor.name, length)
    assert found is not None, "a model loads only if its padded inputs are among its inputs"
    return found[1]


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
