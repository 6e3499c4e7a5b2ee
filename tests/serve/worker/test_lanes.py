"""Models of one worker that run side by side, on a device that is played by events."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from treadle.serve.tensors import Array
from treadle.serve.worker import messages
from treadle.serve.worker.arena import Arena, Progress
from treadle.serve.worker.host import Host
from treadle.serve.worker.lanes import Lanes
from treadle.serve.worker.messages import Done, Failed, Run
from treadle.types import TensorSpec

from .hosting import collect, place


class Staged:
    """A model whose batches end when they are told to."""

    def __init__(self) -> None:
        self.inputs = [TensorSpec("x", "FP32", (-1, 2))]
        self.outputs = [TensorSpec("y", "FP32", (-1, 2))]
        self.begun: list[int] = []
        self.more = threading.Condition()
        self.may_end = threading.Semaphore(0)

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        raise AssertionError("it is to be begun")

    def begin(self, inputs: dict[str, Array]) -> Batch:
        with self.more:
            self.begun.append(len(inputs["x"]))
            self.more.notify_all()
        return Batch(self, inputs["x"].copy())

    def wait_for(self, batches: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: len(self.begun) >= batches, timeout=30)


class Batch:
    """Doubles its input."""

    device_seconds = 0.25

    def __init__(self, model: Staged, x: Array) -> None:
        self._model, self._x, self._places = model, x, dict[str, Array]()

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        return {"y": (self._x.shape, self._x.dtype)}

    def copy_to(self, places: Mapping[str, Array]) -> None:
        self._places = dict(places)

    def wait(self) -> None:
        assert self._model.may_end.acquire(timeout=30)
        if self._x[0, 0] < 0:
            raise RuntimeError("it is negative")
        self._places["y"][...] = 2 * self._x

    def close(self) -> None:
        pass


class Both:
    """Two models' lanes, and the node's ends."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.slots = [(Arena.create("in"), Arena.create("out")) for _ in range(4)]
        self.progress = Progress.create(4)
        self.models = {"a": Staged(), "b": Staged()}
        host = Host(
            [(Arena(i.fd), Arena(o.fd)) for i, o in self.slots],
            {name: (model, True) for name, model in self.models.items()},
        )
        self.lanes = Lanes(host, self.progress, theirs, end=lambda code: None)
        self._theirs = theirs

    def send(self, number: int, model: str, value: float) -> None:
        x = np.full((1, 2), value, np.float32)
        slices = place(self.slots[number][0], {"x": x})
        self.lanes.run([Run(number, number, model, 1, slices)])

    def answer(self) -> Done | Failed:
        self.ours.settimeout(30)
        data = self.ours.recv(messages.MAX_MESSAGE_BYTES)
        (answer,) = messages.decode_from_worker(data)
        assert isinstance(answer, Done | Failed)
        return answer

    def output(self, answer: Done) -> float:
        return float(collect(self.slots[answer.batch][1], answer.outputs)["y"][0, 0])

    def close(self) -> None:
        for arena in (arena for slot in self.slots for arena in slot):
            arena.close()
        self.progress.close()
        self.ours.close()
        self._theirs.close()


@pytest.fixture
def both() -> Iterator[Both]:
    both = Both()
    yield both
    both.close()


def test_one_model_does_not_wait_for_another(both: Both) -> None:
    both.send(0, "a", 1.0)
    both.models["a"].wait_for(1)
    both.send(1, "b", 2.0)
    both.models["b"].may_end.release()
    answer = both.answer()
    assert isinstance(answer, Done)
    assert (answer.batch, both.output(answer)) == (1, 4.0)
    both.models["a"].may_end.release()
    assert both.answer().batch == 0


def test_the_next_batch_is_begun_while_one_runs_but_no_third(both: Both) -> None:
    for number in range(3):
        both.send(number, "a", float(number))
    both.models["a"].wait_for(2)
    assert both.progress.batches == {0, 1}
    both.models["a"].may_end.release()
    assert both.answer().batch == 0
    both.models["a"].wait_for(3)
    both.models["a"].may_end.release(2)
    answers = [both.answer() for _ in range(2)]
    assert [(a.batch, both.output(a)) for a in answers if isinstance(a, Done)] == [
        (1, 2.0),
        (2, 4.0),
    ]


def test_a_batch_that_fails_at_its_end_leaves_the_others(both: Both) -> None:
    both.send(0, "a", -1.0)
    both.send(1, "a", 1.0)
    both.models["a"].may_end.release(2)
    first, second = both.answer(), both.answer()
    assert isinstance(first, Failed)
    assert "it is negative" in first.reason
    assert isinstance(second, Done)
    assert both.output(second) == 2.0


class OutOfMemoryError(RuntimeError):
    """As PyTorch calls it."""


class Large(Staged):
    """Does not fit at first; remembers what its first attempt had made."""

    made: weakref.ref[object] | None = None
    held: object = "not run"

    def begin(self, inputs: dict[str, Array]) -> Batch:
        activations = threading.Event()
        self.made = weakref.ref(activations)
        raise OutOfMemoryError("CUDA out of memory")

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        assert self.made is not None
        self.held = self.made()
        return {"y": 2 * inputs["x"]}


def test_what_does_not_fit_is_let_go_before_it_runs_again() -> None:
    slot, large = (Arena.create("in"), Arena.create("out")), Large()
    host = Host([slot], {"m": (large, True)})
    slices = place(slot[0], {"x": np.ones((1, 2), np.float32)})
    answer = host.begin(Run(1, 0, "m", 1, slices))(0.0)
    assert isinstance(answer, Done)
    assert large.held is None
    for arena in slot:
        arena.close()
