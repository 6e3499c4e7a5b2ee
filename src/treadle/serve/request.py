"""An inference request and its answer, whichever protocol brought it."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.serve.tensors import Tensor
from treadle.types import Priority


@dataclass(slots=True)
class RequestedOutput:
    """An output that the caller asks for."""

    name: str
    binary: bool


@dataclass(slots=True)
class InferenceRequest:
    """A decoded request. Not yet held against what its model takes."""

    inputs: list[Tensor]
    outputs: list[RequestedOutput] = field(default_factory=list)
    """Empty: all of the model's outputs."""
    id: str = ""
    priority: Priority | None = None
    timeout_seconds: float | None = None
    binary_outputs: bool = False
    """What outputs that are not named one by one are encoded as."""
