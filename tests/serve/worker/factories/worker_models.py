"""Models for the tests of the worker, in every form that a factory may have."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from treadle import ModelContext, TensorSpec
from treadle.serve.tensors import Array

Specs = tuple[TensorSpec, ...]

INPUTS: Specs = (TensorSpec("x", "FP32", (-1, 2)),)
OUTPUTS: Specs = (TensorSpec("y", "FP32", (-1, 2)),)

Inputs = dict[str, Array]
Outputs = Mapping[str, Any]

NOT_CALLABLE = 5


class Doubles:
    """Takes no context and has no constructor of its own."""

    inputs = INPUTS
    outputs = OUTPUTS

    def __call__(self, inputs: Inputs) -> Outputs:
        return {"y": np.multiply(inputs["x"], 2)}


class WithContext(Doubles):
    """Remembers where it runs."""

    def __init__(self, context: ModelContext) -> None:
        self.outputs = (TensorSpec("y", "BYTES", (5,)),)
        self._answer = np.array(
            [
                context.name,
                context.device,
                f"{context.threads}/{context.max_batch}",
                str(context.folder),
                repr(dict(context.parameters)),
            ],
            object,
        )

    def __call__(self, inputs: Inputs) -> Outputs:
        return {"y": self._answer}


def with_a_context_by_any_name(place):  # type: ignore[no-untyped-def]
    return WithContext(place)


def with_a_context_that_may_be_missing(context: ModelContext | None = None) -> WithContext:
    assert context is not None
    return WithContext(context)


def without_context() -> Doubles:
    return Doubles()


def with_context(context: ModelContext) -> WithContext:
    return WithContext(context)


def with_settings_of_its_own(*, scale: float = 3.0) -> object:
    """Not made for treadle: a context is nothing that it takes."""

    def call(inputs: Inputs) -> Outputs:
        return {"y": np.multiply(inputs["x"], np.float32(scale))}

    return call


def echoes() -> object:
    return lambda inputs: {"y": inputs["x"]}


def tells_its_lengths() -> object:
    def call(inputs: Inputs) -> Outputs:
        raise RuntimeError(f"{inputs['x'].shape} {inputs['lengths'].tolist()}")

    return call


def a_function() -> object:
    """A bare callable, whose inputs and outputs the configuration must declare."""
    return Doubles().__call__


def not_a_model() -> object:
    class Silent:
        inputs = INPUTS
        outputs = OUTPUTS

    return Silent()


def raises() -> object:
    raise RuntimeError("no weights today")


def exits() -> object:
    raise SystemExit(3)


class Returns:
    """Returns whatever ``parameters.what`` names, for one output or two."""

    inputs = INPUTS

    def __init__(self, context: ModelContext) -> None:
        self._what = context.parameters["what"]
        datatype = context.parameters.get("datatype", "FP32")
        self.outputs = [TensorSpec("y", datatype, (-1, 2))]

    def __call__(self, inputs: Inputs) -> Outputs:
        x = inputs["x"]
        rows = len(x)
        values: dict[str, Any] = {
            "right": {"y": np.zeros((rows, 2), np.float32)},
            "extra": {"y": np.zeros((rows, 2), np.float32), "z": np.zeros(1)},
            "list": {"y": [[1.0, 2.0]] * rows},
            "other name": {"Y": np.zeros((rows, 2), np.float32)},
            "nothing": None,
            "empty": {},
            "other type": {"y": np.zeros((rows, 2))},
            "no type": {"y": np.zeros((rows, 2), np.complex64)},
            "other rank": {"y": np.zeros((rows, 2, 1), np.float32)},
            "other size": {"y": np.zeros((rows, 3), np.float32)},
            "more rows": {"y": np.zeros((rows + 1, 2), np.float32)},
            "transposed": {"y": np.asfortranarray(x)},
            "its input": {"y": x},
            "texts": {"y": np.array([["a" * n, ""] for n in range(rows)], object)},
            "no texts": {"y": np.array([[1, 2]] * rows, object)},
        }
        return values[self._what]  # type: ignore[no-any-return]


class Misbehaves(Doubles):
    """Does what the first element of its input says."""

    def __call__(self, inputs: Inputs) -> Outputs:
        match int(inputs["x"][0, 0]):
            case -1:
                raise ValueError("cannot read this")
            case -2:
                raise ValueError("unsayable: \udcff")
            case -3:
                raise ValueError("x" * 100_000)
            case -4:
                os.kill(os.getpid(), signal.SIGKILL)
            case -5:
                raise SystemExit(7)
            case -6:
                print("a line", file=sys.stderr, flush=True)
                print("another", "no end", sep="\n", end="", flush=True)
            case -7:
                signal.pause()
            case -8:
                print("x" * 1_000_000, "after", sep="\n", flush=True)
        return super().__call__(inputs)


class Yields(Doubles):
    """Yields as many parts as the first element of its input says, then does what the second says.

    Leaves a line in the file ``parameters.closed`` when it is closed early.
    """

    def __init__(self, context: ModelContext) -> None:
        self._closed = context.parameters.get("closed")
        self._rows = context.parameters.get("rows", 1)

    def __call__(self, inputs: Inputs) -> Iterator[Outputs]:  # type: ignore[override]
        count, then = inputs["x"][0].tolist()
        try:
            for number in range(int(count)):
                yield {"y": np.full((number % 5 * self._rows, 2), number, np.float32)}
        except GeneratorExit:
            if self._closed:
                Path(self._closed).write_text("closed\n")
            raise
        match int(then):
            case -1:
                raise ValueError("cannot go on")
            case -4:
                os.kill(os.getpid(), signal.SIGKILL)
            case -5:
                raise SystemExit(7)


class ManyTexts(Doubles):
    """Eight outputs whose rows all end somewhere else, and far from the start."""

    outputs = tuple(TensorSpec(f"y{n}", "BYTES", (-1,)) for n in range(8))

    def __call__(self, inputs: Inputs) -> Outputs:
        texts = np.array([b"x" * 100] * len(inputs["x"]), object)
        return {spec.name: texts for spec in self.outputs}


class LoadsOnce(Doubles):
    """Loads as long as the file ``parameters.fuse`` is not there."""

    def __init__(self, context: ModelContext) -> None:
        fuse = Path(context.parameters["fuse"])
        if fuse.exists():
            raise RuntimeError("the fuse has blown")


class FailsForTheLast(Doubles):
    """Loads twice, and not a third time; every load leaves a file in ``parameters.folder``."""

    def __init__(self, context: ModelContext) -> None:
        folder = Path(context.parameters["folder"])
        (folder / str(os.getpid())).touch()
        if len(list(folder.iterdir())) > 2:
            raise RuntimeError("one too many")


class DiesWhileLoading(Doubles):
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class HangsWhileLoading(Doubles):
    def __init__(self, context: ModelContext) -> None:
        Path(context.parameters["started"]).write_text(str(os.getpid()))
        signal.pause()


class Environment(Doubles):
    """Answers with a variable of its environment."""

    outputs = (TensorSpec("y", "BYTES", (1,)),)

    def __init__(self, context: ModelContext) -> None:
        self._name = context.parameters["variable"]

    def __call__(self, inputs: Inputs) -> Outputs:
        return {"y": np.array([os.environ.get(self._name, "unset")], object)}


class Unloadable(Doubles):
    """Declares what cannot be."""

    def __init__(self, context: ModelContext) -> None:
        datatype, shape = context.parameters["datatype"], tuple(context.parameters["shape"])
        self.outputs = (TensorSpec("y", datatype, shape),)
