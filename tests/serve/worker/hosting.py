"""Models to host, and the node's part in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treadle.serve.tensors import Array, Tensor, from_array, to_array
from treadle.serve.worker.arena import Arena
from treadle.serve.worker.host import Host
from treadle.serve.worker.messages import (
    Done,
    Failed,
    Load,
    Loaded,
    LoadFailed,
    ModelSetup,
    PlainSpec,
    Run,
    Slice,
)

FACTORIES = Path(__file__).parent / "factories"

FLOATS: tuple[PlainSpec, ...] = (("x", "FP32", (-1, 2)),)
RESULT: tuple[PlainSpec, ...] = (("y", "FP32", (-1, 2)),)

_FIRST_OFFSET = 64


def model(factory: str | None = "worker_models:Doubles", **changes: Any) -> ModelSetup:
    """A good setup, but for what is changed."""
    defaults: dict[str, Any] = {
        "name": "m",
        "onnx": None,
        "factory": factory,
        "torchscript": None,
        "exported": None,
        "priority": 1,
        "inputs": (),
        "outputs": (),
        "parameters": {},
        "device": "cpu",
        "threads": 1,
        "max_batch": 1,
        "folder": str(FACTORIES),
    }
    return ModelSetup(**defaults | changes)


def place(arena: Arena, arrays: dict[str, Array]) -> tuple[Slice, ...]:
    """Write inputs where a worker finds them."""
    slices, end = [], _FIRST_OFFSET
    for name, array in arrays.items():
        tensor = from_array(name, array)
        nbytes = len(tensor.data)
        view = arena.reserve(end + nbytes)
        view[end : end + nbytes] = tensor.data
        slices.append(Slice(name, tensor.datatype, tensor.shape, end, nbytes))
        end += -(-nbytes // 64) * 64
    return tuple(slices)


def collect(arena: Arena, slices: tuple[Slice, ...]) -> dict[str, Array]:
    """Read the outputs that a worker wrote."""
    outputs = {}
    for s in slices:
        view = arena.follow(s.offset + s.nbytes)
        data = bytes(view[s.offset : s.offset + s.nbytes])
        outputs[s.name] = to_array(Tensor(s.name, s.datatype, s.shape, data))
    return outputs


class LocalHost:
    """A host in this process, with both ends of its one slot."""

    def __init__(self) -> None:
        self.inputs, self.outputs = Arena.create("inputs"), Arena.create("outputs")
        self.host = Host([(Arena(self.inputs.fd), Arena(self.outputs.fd))])

    def load(self, *setups: ModelSetup) -> Loaded | LoadFailed:
        return self.host.load(Load(setups, nice=0))

    def answer(self, model: str = "m", rows: int = 1, **arrays: Array) -> Done | Failed:
        return self.host.run(Run(1, 0, model, rows, place(self.inputs, arrays)))

    def run(self, model: str = "m", rows: int = 1, **arrays: Array) -> dict[str, Array]:
        answer = self.answer(model, rows, **arrays)
        assert isinstance(answer, Done), answer
        return collect(self.outputs, answer.outputs)

    def failure(self, rows: int = 1, **arrays: Array) -> str:
        answer = self.answer("m", rows, **arrays)
        assert isinstance(answer, Failed), answer
        return answer.reason

    def refusal(self, setup: ModelSetup) -> str:
        """Why a model is not loaded."""
        answer = self.load(setup)
        assert isinstance(answer, LoadFailed), answer
        assert answer.model == setup.name
        return answer.reason

    def close(self) -> None:
        self.inputs.close()
        self.outputs.close()
