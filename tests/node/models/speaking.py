"""A model that answers in parts, and does what it is told between them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treadle import ModelContext, TensorSpec

Texts = npt.NDArray[np.object_]


class Spells:
    """Yields its text letter by letter, each as often as its parameter ``times`` says.

    Some letters are orders: ``_`` waits as long as the file named after the model is in the
    folder ``gates``, ``!`` raises, ``#`` kills the process, ``?`` yields what may not be, ``*``
    yields without end. The file ``ran`` tells when it starts and when it is closed early.
    """

    inputs = (TensorSpec("text", "BYTES", (1,)),)
    outputs = (TensorSpec("letter", "BYTES", (1,)),)

    def __init__(self, context: ModelContext) -> None:
        self._name = context.name
        self._ran = context.folder / "ran"
        self._gate = context.folder / "gates" / context.name
        self._times = context.parameters.get("times", 1)

    def __call__(self, inputs: dict[str, Texts]) -> Iterator[dict[str, Texts]]:
        text = inputs["text"][0].decode()
        self._note(text)
        try:
            for letter in text:
                while letter == "_" and self._gate.exists():
                    time.sleep(0.002)
                if letter == "!":
                    raise RuntimeError("cannot say this")
                if letter == "#":
                    os.kill(os.getpid(), signal.SIGKILL)
                if letter == "?":
                    yield {"letters": self._said(letter)}
                yield {"letter": self._said(letter)}
                while letter == "*":
                    yield {"letter": self._said(letter)}
        except GeneratorExit:
            self._note("closed")
            raise

    def _said(self, letter: str) -> Texts:
        return np.array([letter * self._times], np.object_)

    def _note(self, what: str) -> None:
        with self._ran.open("a") as file:
            file.write(f"{self._name}: {what}\n")


class SpellsAtOnce(Spells):
    """Gives a whole answer, though it may yield."""

    def __call__(self, inputs: dict[str, Texts]) -> dict[str, Texts]:  # type: ignore[override]
        return {"letter": inputs["text"]}
