"""An inference request, whichever protocol brought it."""

from __future__ import annotations

from msgspec import Struct

from treadle.serve.tensors import Tensor
from treadle.types import Priority


class RequestedOutput(Struct):
    """An output that the caller asks for."""

    name: str
    binary: bool


class InferenceRequest(Struct, eq=False):
    """A decoded request. Not yet held against what its model takes."""

    inputs: list[Tensor]
    outputs: list[RequestedOutput] = []
    """Empty: all of the model's outputs."""
    id: str = ""
    priority: Priority | None = None
    timeout_seconds: float | None = None
    binary_outputs: bool = False
    """What outputs that are not named one by one are encoded as."""
