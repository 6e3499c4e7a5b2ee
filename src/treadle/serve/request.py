"""An inference request, whichever protocol brought it."""

from __future__ import annotations

from msgspec import Struct

from treadle.serve.tensors import SharedPlace, SharedTensor, Tensor
from treadle.types import Priority


class RequestedOutput(Struct):
    """An output that the caller asks for."""

    name: str
    binary: bool
    place: SharedPlace | None = None
    """Where in shared memory it is to go."""


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

    empty_final: bool = False
    """Whether a stream tells the end of an answer in parts by a message of its own."""

    @property
    def shares_memory(self) -> bool:
        """Whether inputs or outputs lie in shared memory. Inputs that do have no data yet."""
        return any(isinstance(tensor, SharedTensor) for tensor in self.inputs) or any(
            output.place is not None for output in self.outputs
        )
