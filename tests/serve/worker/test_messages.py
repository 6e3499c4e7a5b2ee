"""What the node and a worker say to each other."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from treadle.serve.worker import messages
from treadle.serve.worker.messages import (
    Done,
    Failed,
    FromWorker,
    Load,
    Loaded,
    LoadFailed,
    Run,
    Slice,
    ToWorker,
)

from .hosting import FLOATS, RESULT, model

SLICE = Slice("x", "FP32", (2, 3), 64, 24)
TEXTS = Slice("t", "BYTES", (2,), 128, 20, (8, 20))

TO_WORKER: list[ToWorker] = [
    Load((), 0),
    Load((model(), model(None, onnx="m.onnx", inputs=FLOATS, outputs=RESULT)), 19),
    Load((model(parameters={"a": [1, 2.5, "ü", None, True], "b": {"c": {}}}),), 5),
    (Run(1, 0, "m", 3, (SLICE, TEXTS)), Run(2**40, 3, "m", 1, ())),
]
FROM_WORKER: list[FromWorker] = [
    Loaded({}),
    Loaded({"m": ((("x", "FP32", (-1, 2)),), (("y", "BYTES", ()), ("z", "BOOL", (1,))))}),
    LoadFailed("m", "no such file: größer"),
    (Done(7, (SLICE, TEXTS), 0.001, 0.25, 1e-9), Failed(8, "ValueError: no")),
]


@pytest.mark.parametrize("message", TO_WORKER, ids=range(len(TO_WORKER)))
def test_messages_to_a_worker(message: ToWorker) -> None:
    data = messages.encode(message)
    back = messages.decode_to_worker(data)
    assert (type(back), back) == (type(message), message)
    with pytest.raises(msgspec.ValidationError):
        messages.decode_from_worker(data)


@pytest.mark.parametrize("message", FROM_WORKER, ids=range(len(FROM_WORKER)))
def test_messages_from_a_worker(message: FromWorker) -> None:
    data = messages.encode(message)
    back = messages.decode_from_worker(data)
    assert (type(back), back) == (type(message), message)
    with pytest.raises(msgspec.ValidationError):
        messages.decode_to_worker(data)


def test_all_that_toml_knows_may_be_a_parameter() -> None:
    moment = datetime.datetime(2024, 5, 1, 12, 30, tzinfo=datetime.UTC)
    parameters: dict[str, Any] = {"when": moment, "inf": float("inf"), "text": "x" * 1000}
    back = messages.decode_to_worker(messages.encode(Load((model(parameters=parameters),), 0)))
    assert isinstance(back, Load)
    assert back.models[0].parameters == parameters


@pytest.mark.parametrize("nchars", [0, 1, messages.MAX_REASON_CHARS])
def test_a_short_reason_stays_as_it_is(nchars: int) -> None:
    assert messages.shorten("x" * nchars) == "x" * nchars


def test_a_long_reason_keeps_its_end() -> None:
    reason = messages.shorten("beginning " + "🙂" * 100_000 + " the cause")
    assert reason.startswith("… ")
    assert reason.endswith(" the cause")
    assert len(messages.encode(LoadFailed("m", reason))) < messages.MAX_MESSAGE_BYTES


def test_the_largest_batch_of_texts_fits_a_message() -> None:
    """As many rows as a batch may have, each of which ends somewhere else."""
    ends = tuple(range(0, 4096 * 2**20, 2**20))
    answer = Done(1, (Slice("t", "BYTES", (4096,), 0, ends[-1], ends),), 0.1, 0.1, 0.1)
    data = messages.encode_answer(answer)
    assert data == messages.encode(answer)
    assert len(data) < messages.MAX_MESSAGE_BYTES


def test_answers_that_travel_together_fit_a_message() -> None:
    answers: list[Done | Failed] = [Done(1, (SLICE,), 0.1, 0.1, 0.1)]
    answers += [Failed(n, "x" * messages.MAX_REASON_CHARS) for n in range(2, 40)]
    together, sent = messages.Answers(), []
    for answer in answers:
        data = messages.encode_answer(answer)
        if not together.have_room_for(data):
            sent.append(together.take())
        together.add(data)
    sent.append(together.take())
    assert len(sent) > 1
    assert max(map(len, sent)) <= messages.MAX_MESSAGE_BYTES
    assert [a for data in sent for a in messages.decode_from_worker(data)] == answers
