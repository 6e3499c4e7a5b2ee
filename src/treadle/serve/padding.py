"""Inputs of any length, padded to a few lengths so that they batch; outputs cut back."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from treadle.serve.tensors import DTYPES, Buffer, Tensor, to_array
from treadle.types import TensorSpec

Length = Annotated[int, Meta(ge=1, le=2**31)]
Axis = Annotated[int, Meta(ge=1, le=31)]
"""Counted from 0, which is the batch and cannot be padded."""


class PaddingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[model.padding]`` table. ``docs/models.md`` says what each key means."""

    lengths: Annotated[tuple[Length, ...], Meta(min_length=1)]
    inputs: Annotated[dict[str, Axis], Meta(min_length=1)]
    outputs: dict[str, Axis] = {}
    fill: dict[str, bool | int | float] = {}
    length_input: str | None = None

    def bucket(self, length: int) -> Bucket | None:
        """The smallest of the lengths that holds so many; None if none does."""
        place = bisect_left(self.lengths, length)
        return Bucket(self, self.lengths[place]) if place < len(self.lengths) else None

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Hold what is configured against itself, and against a model.

        Args:
            inputs: Of the model, the lengths among them; empty if they are not known yet.
            outputs: Of the model; empty if they are not known yet.

        Raises:
            ValueError: Names the key and what is allowed.
        """
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError(f"lengths: {list(self.lengths)}; allowed: each greater than the last")
        for name in self.fill:
            if name not in self.inputs:
                raise ValueError(f"fill: {name!r}; allowed: {', '.join(self.inputs)}")
        if self.length_input in self.inputs:
            raise ValueError(f"length_input: {self.length_input!r} is padded itself")
        if inputs:
            _check_axes("inputs", self.inputs, inputs)
            self._check_fill(inputs)
            self._check_length_input(inputs)
        if outputs:
            _check_axes("outputs", self.outputs, outputs)

    def asked_of_clients(self, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """A model's inputs without the one that the server fills."""
        return tuple(spec for spec in inputs if spec.name != self.length_input)

    def _check_fill(self, inputs: Sequence[TensorSpec]) -> None:
        datatypes = {spec.name: spec.datatype for spec in inputs}
        for name, value in self.fill.items():
            if not _holds(datatypes[name], value):
                raise ValueError(f"fill: {name}: {value!r}; allowed: any {datatypes[name]}")

    def _check_length_input(self, inputs: Sequence[TensorSpec]) -> None:
        if self.length_input is None:
            return
        spec = next((spec for spec in inputs if spec.name == self.length_input), None)
        if spec is None:
            names = ", ".join(spec.name for spec in inputs)
            raise ValueError(f"length_input: no input {self.length_input!r}; there are: {names}")
        if spec.datatype != "INT64" or tuple(spec.shape) != (-1,):
            raise ValueError(
                f"length_input: {spec.name!r} is {spec.datatype} of shape {list(spec.shape)}; "
                "allowed: INT64 of shape [-1]"
            )


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the lengths, and what it makes of inputs."""

    config: PaddingConfig
    length: int

    def pad(self, tensor: Tensor) -> Buffer | PaddedTensor:
        """What an input becomes: its own data, or something that can be copied to its place."""
        shape = self.shape(tensor.name, tensor.shape)
        if shape == tensor.shape:
            return tensor.data
        return PaddedTensor(tensor, shape, self.config.fill.get(tensor.name, 0))

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What the shape of an input becomes."""
        axis = self.config.inputs.get(name)
        return shape if axis is None else (*shape[:axis], self.length, *shape[axis + 1 :])


class PaddedTensor:
    """An input, and what it is to become where its batch is put together."""

    __slots__ = ("_fill", "_nbytes", "_shape", "_tensor")

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], fill: float) -> None:
        """Say that a tensor is to get a shape that is larger along one axis."""
        self._tensor, self._shape, self._fill = tensor, shape, fill
        self._nbytes = math.prod(shape) * DTYPES[tensor.datatype].itemsize

    def __len__(self) -> int:
        """Its size when padded, in bytes."""
        return self._nbytes

    def copy_to(self, place: memoryview) -> None:
        """Write it to ``place``, which is as large as this is, and fill what is left of it."""
        tensor = self._tensor
        target = np.frombuffer(place, DTYPES[tensor.datatype]).reshape(self._shape)
        target[tuple(map(slice, tensor.shape))] = to_array(tensor)
        rest = (
            slice(None) if had == has else slice(had, None)
            for had, has in zip(tensor.shape, self._shape, strict=True)
        )
        target[tuple(rest)] = self._fill


def cut(tensor: Tensor, axis: int, length: int | None) -> Tensor:
    """Copy a tensor, but only ``length`` of it along an axis; all of it if that is None."""
    rest = to_array(tensor)[(slice(None),) * axis + (slice(length),)]
    return Tensor(tensor.name, tensor.datatype, rest.shape, rest.tobytes())


def _check_axes(key: str, axes: Mapping[str, int], specs: Sequence[TensorSpec]) -> None:
    known = {spec.name: spec for spec in specs}
    for name, axis in axes.items():
        spec = known.get(name)
        if spec is None:
            raise ValueError(
                f"{key}: {name!r} is none of the model's; there are: {', '.join(known)}"
            )
        if spec.datatype == "BYTES":
            raise ValueError(f"{key}: {name!r} is BYTES; allowed: numbers")
        if axis >= len(spec.shape) or spec.shape[axis] != -1:
            raise ValueError(
                f"{key}: {name} = {axis}: its shape is {list(spec.shape)}; "
                "allowed: an axis that is -1 there"
            )


def _holds(datatype: str, value: float) -> bool:
    """Whether a datatype can represent a value; a fraction may be rounded by a floating type."""
    dtype = DTYPES[datatype]
    try:
        with np.errstate(all="ignore"):
            cast = np.asarray(value).astype(dtype).item()
        if datatype in ("FP16", "FP32", "FP64", "BF16"):
            return math.isfinite(cast) == math.isfinite(value)
        return bool(cast == value)
    except OverflowError:
        return False
