"""Answers in parts, in the worker: where parts lie, who waits, and how they end."""

from __future__ import annotations

import random
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from treadle.serve.worker import messages
from treadle.serve.worker.arena import Arena, Progress
from treadle.serve.worker.host import Host
from treadle.serve.worker.lanes import Lanes
from treadle.serve.worker.messages import (
    MOST_UNTAKEN,
    Done,
    Failed,
    Load,
    Loaded,
    ModelSetup,
    Part,
    Run,
    Stop,
    Taken,
)
from treadle.serve.worker.streams import Stream

from .hosting import LocalHost, collect, model, place

TAKEN = Taken(1)


@pytest.mark.parametrize("seed", range(5))
def test_parts_that_are_not_taken_never_overlap_and_their_room_is_used_again(seed: int) -> None:
    chance, stream, largest = random.Random(seed), Stream(), 5000
    untaken: deque[tuple[int, int]] = deque()
    for _ in range(2000):
        if untaken and (len(untaken) == MOST_UNTAKEN or chance.random() < 0.5):
            untaken.popleft()
            stream.tell(TAKEN)
        assert stream.wait()
        nbytes = chance.randrange(largest)
        start = stream.place(nbytes)
        assert start % 64 == 0
        for first, end in untaken:
            assert start + nbytes <= first or start >= end
        assert start + nbytes <= 2 * MOST_UNTAKEN * largest
        untaken.append((start, start + nbytes))


def test_a_worker_waits_until_a_part_is_taken() -> None:
    stream = Stream()
    for _ in range(MOST_UNTAKEN):
        assert stream.wait()
        stream.place(0)
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(stream.wait()))
    waiting.start()
    waiting.join(0.05)
    assert not found
    stream.tell(TAKEN)
    waiting.join(30)
    assert found == [True]


def test_a_worker_that_waits_can_be_stopped() -> None:
    stream = Stream()
    for _ in range(MOST_UNTAKEN):
        stream.place(100)
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(stream.wait()))
    waiting.start()
    stream.tell(Stop(1))
    waiting.join(30)
    assert found == [False]
    assert not stream.wait()


class Node:
    """The node's end of lanes in this process, one for all models."""

    def __init__(self) -> None:
        self.ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(30)
        self._slots = [(Arena.create("in"), Arena.create("out")) for _ in range(4)]
        self._progress = Progress.create(8)
        self._host = Host([(Arena(i.fd), Arena(o.fd)) for i, o in self._slots])
        self.lanes = Lanes(
            self._host, self._progress, self._theirs, side_by_side=False, end=lambda code: None
        )

    def load(self, *setups: ModelSetup) -> None:
        assert isinstance(self._host.load(Load(setups, nice=0)), Loaded)

    def run(self, number: int, x: float, then: float = 0.0, name: str = "m") -> None:
        slices = place(self._slots[number][0], {"x": np.array([[x, then]], np.float32)})
        self.lanes.run([Run(number, number, name, 1, slices)])

    def read(self) -> Done | Failed | Part:
        data = self.ours.recv(messages.MAX_MESSAGE_BYTES)
        (answer,) = messages.decode_from_worker(data)
        assert isinstance(answer, Done | Failed | Part)
        return answer

    def take(self, part: Done | Failed | Part) -> list[list[float]]:
        assert isinstance(part, Part), part
        y: list[list[float]] = collect(self._slots[part.batch][1], part.outputs)["y"].tolist()
        self.lanes.tell(Taken(part.batch))
        return y

    def close(self) -> None:
        for arena in (arena for slot in self._slots for arena in slot):
            arena.close()
        self._progress.close()
        self.ours.close()
        self._theirs.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def yielding(name: str = "m", **parameters: object) -> ModelSetup:
    return model("worker_models:Yields", name=name, parameters=parameters, streaming=True)


def part(number: int) -> list[list[float]]:
    return [[float(number)] * 2] * (number % 5)


def test_parts_come_in_order_and_then_the_end(node: Node) -> None:
    node.load(yielding())
    node.run(0, 30)
    assert [node.take(node.read()) for _ in range(30)] == [part(n) for n in range(30)]
    done = node.read()
    assert isinstance(done, Done)
    assert done.outputs == ()
    assert done.first_part_seconds is not None
    assert done.first_part_seconds >= 0


def test_no_parts_at_all(node: Node) -> None:
    node.load(yielding())
    node.run(0, 0)
    done = node.read()
    assert isinstance(done, Done)
    assert done.first_part_seconds is None


def test_parts_that_are_not_taken_stay_as_they_are(node: Node) -> None:
    node.load(yielding())
    node.run(0, 100)
    parts = [node.read() for _ in range(MOST_UNTAKEN)]
    assert [node.take(each) for each in parts] == [part(n) for n in range(MOST_UNTAKEN)]


def test_requests_run_one_after_the_other_beside_other_models(node: Node) -> None:
    node.load(yielding("a"), model(name="b"))
    node.run(0, 10, name="a")
    node.run(1, 5, name="b")
    node.run(2, 1, name="a")
    assert [node.take(node.read()) for _ in range(10)] == [part(n) for n in range(10)]
    # The last may have begun before the end of those before was told.
    rest = [node.read() for _ in range(4)]
    assert [a.batch for a in rest if isinstance(a, Done)] == [0, 1, 2]
    assert [node.take(a) for a in rest if isinstance(a, Part)] == [part(0)]


def test_a_pytorch_module_may_share_the_worker(node: Node) -> None:
    node.load(yielding("a"), model("torch_models:declared", name="b"))
    node.run(0, 1, name="a")
    node.run(1, 5, name="b")
    assert node.take(node.read()) == part(0)
    assert [node.read().batch for _ in range(2)] == [0, 1]


def test_a_model_that_raises_has_its_parts_sent(node: Node) -> None:
    node.load(yielding())
    node.run(0, 3, -1)
    assert [node.take(node.read()) for _ in range(3)] == [part(n) for n in range(3)]
    failed = node.read()
    assert isinstance(failed, Failed)
    assert "cannot go on" in failed.reason


def test_one_that_is_stopped_is_closed_and_the_next_runs(node: Node, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    node.load(yielding(closed=str(closed)))
    node.run(0, 1_000_000)
    assert node.take(node.read()) == part(0)
    node.run(1, 1)
    node.run(2, 1_000_000)
    node.lanes.tell(Stop(0))
    node.lanes.tell(Stop(2))
    node.lanes.tell(Stop(3))  # of which it knows nothing
    answers: list[Done | Failed | Part] = []
    while sum(isinstance(answer, Done) for answer in answers) < 3:
        answers.append(node.read())
    assert closed.read_text() == "closed\n"
    # The next may have begun before the end of the one before was told.
    assert [a.batch for a in answers if isinstance(a, Done)] == [0, 1, 2]
    assert [a.batch for a in answers if isinstance(a, Part) and a.batch] == [1]


def test_what_may_not_be_yielded_by_a_model_that_is_not_said_to(host: LocalHost) -> None:
    assert isinstance(host.load(model("worker_models:Yields")), Loaded)
    assert "streaming = true" in host.failure(x=np.zeros((1, 2), np.float32))


def test_a_pytorch_module_yields_nothing(host: LocalHost) -> None:
    assert "yields" in host.refusal(model("torch_models:declared", streaming=True))
