"""Batches of requests of unequal lengths: each caller gets what it would get alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import ModelError
from treadle.schedule import Batch
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.padding import PaddingConfig
from treadle.serve.running import Outputs, RunningBatch
from treadle.serve.tensors import DTYPES, Array, from_array, to_array
from treadle.serve.ticket import Ticket
from treadle.serve.validate import check_inputs
from treadle.serve.worker.arena import Arena
from treadle.serve.worker.host import Host
from treadle.serve.worker.messages import Done, Failed, Run
from treadle.serve.worker.process import Slot, WorkerLane, WorkerProcess
from treadle.types import TensorSpec

LENGTHS = (2, 5, 9)


class Sentences:
    """One output by element, one that sums over what the mask leaves, one over the lengths."""

    def __init__(self, datatype: str = "FP32") -> None:
        self.inputs = [
            TensorSpec("x", datatype, (-1, -1, 2)),
            TensorSpec("mask", "BOOL", (-1, -1)),
            TensorSpec("offset", datatype, (-1, 1)),
            TensorSpec("lengths", "INT64", (-1,)),
        ]
        self.outputs = [
            TensorSpec("each", datatype, (-1, 2, -1)),
            TensorSpec("masked", datatype, (-1, 2)),
            TensorSpec("counted", "INT64", (-1,)),
            TensorSpec("filled", "BOOL", (-1,)),
        ]
        self.runs = 0

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        self.runs += 1
        x, mask, lengths = cast(Any, inputs["x"]), inputs["mask"], cast(Any, inputs["lengths"])
        within = np.arange(x.shape[1])[None] < lengths[:, None]
        return {
            "each": (x + cast(Any, inputs["offset"])[:, :, None]).transpose(0, 2, 1),
            "masked": np.where(mask[:, :, None], x, x.dtype.type(0)).sum(1, dtype=x.dtype),
            "counted": lengths,
            "filled": np.asarray((x == x.dtype.type(7)).all(2) == ~within).all(1),
        }


class Here:
    """A worker that runs what it is given in this process."""

    def __init__(self, model: Any) -> None:
        arenas = [Arena.create("inputs"), Arena.create("outputs")]
        self.slot = Slot(0, *arenas)
        self._host = Host([(Arena(arenas[0].fd), Arena(arenas[1].fd))], {"m": (model, True)})

    def take_slot(self) -> Slot:
        return self.slot

    def free_slot(self, slot: Slot) -> None:
        assert slot is self.slot

    def run(
        self,
        message: Run,
        on_answer: Callable[[Done | Failed], None],
        on_death: Callable[[ModelError, bool], None],
    ) -> None:
        on_answer(self._host.run(message))

    def flush(self) -> None:
        pass

    def kill(self, reason: str) -> None:
        raise AssertionError(reason)


def served(model: Any, padding: PaddingConfig) -> ServedModel:
    config = ModelConfig(name="m", factory="a:b", max_batch=64, padding=padding)
    found = ServedModel(config)
    found.inputs, found.outputs = padding.asked_of_clients(model.inputs), model.outputs
    found.group = cast(Any, object())
    return found


async def run_together(
    model: Any, padding: PaddingConfig, requests: Sequence[dict[str, Array]]
) -> list[dict[str, Array]] | Failed:
    """Answer requests of one bucket in one batch."""
    known, loop = served(model, padding), asyncio.get_running_loop()
    tickets = []
    for arrays in requests:
        checked = check_inputs(known, [from_array(name, a) for name, a in arrays.items()])
        tickets.append(
            Ticket(
                model="m",
                served=known,
                batch_key=checked.batch_key,
                bucket=checked.bucket,
                rows=checked.rows,
                arrived=0.0,
                deadline=1.0,
                inputs=checked.tensors,
                length=checked.length,
                answer=loop.create_future(),
            )
        )
    assert len({ticket.batch_key for ticket in tickets}) == 1
    ended: asyncio.Future[tuple[Any, Outputs]] = loop.create_future()
    worker = Here(model)
    RunningBatch(
        known,
        Batch("m", tuple(tickets), aged=False),
        tuple(tickets),
        WorkerLane(cast(WorkerProcess, worker)),
        0.0,
        loop,
        lambda running, answer, outputs: ended.set_result((answer, outputs)),
    ).start(1)
    answer, outputs = await ended
    worker.slot.close()
    if isinstance(answer, Failed):
        return answer
    return [{t.name: to_array(t) for t in tensors} for tensors in outputs]


def request(rows: int, length: int, seed: int, datatype: str = "FP32") -> dict[str, Array]:
    random = np.random.default_rng(seed)
    dtype = DTYPES[datatype]
    return {
        "x": random.integers(0, 5, (rows, length, 2)).astype(dtype),
        "mask": random.integers(0, 2, (rows, length)).astype(np.bool_),
        "offset": random.integers(0, 5, (rows, 1)).astype(dtype),
    }


def padding(**changes: Any) -> PaddingConfig:
    keys: dict[str, Any] = {
        "lengths": LENGTHS,
        "inputs": {"x": 1, "mask": 1},
        "outputs": {"each": 2},
        "fill": {"x": 7},
        "length_input": "lengths",
    }
    return PaddingConfig(**keys | changes)


@given(
    bucket=st.sampled_from([(0, 2), (3, 5), (6, 9)]),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.floats(0, 1)), min_size=1, max_size=6),
    datatype=st.sampled_from(["FP32", "FP16", "BF16", "FP64", "INT8", "UINT64"]),
)
def test_every_caller_gets_what_it_would_get_alone(
    bucket: tuple[int, int], sizes: list[tuple[int, float]], datatype: str
) -> None:
    least, most = bucket
    requests = [
        request(rows, least + round(part * (most - least)), seed, datatype)
        for seed, (rows, part) in enumerate(sizes)
    ]
    model = Sentences(datatype)
    answers = asyncio.run(run_together(model, padding(), requests))
    assert not isinstance(answers, Failed), answers
    assert model.runs == 1
    for arrays, answer in zip(requests, answers, strict=True):
        rows, length = arrays["mask"].shape
        alone = model(arrays | {"lengths": np.full(rows, length, np.int64)})
        for name, array in alone.items():
            assert answer[name].dtype == array.dtype
            assert answer[name].shape == array.shape
            assert np.array_equal(answer[name], array), name
        assert np.all(answer["filled"])


async def test_a_large_batch_is_padded_and_cut_the_same() -> None:
    """It is copied in a thread."""
    requests = [request(3, 70_000, 1), request(2, 65_000, 2)]
    model = Sentences()
    answers = await run_together(model, padding(lengths=(100_000,)), requests)
    assert not isinstance(answers, Failed)
    for arrays, answer in zip(requests, answers, strict=True):
        rows, length = arrays["mask"].shape
        alone = model(arrays | {"lengths": np.full(rows, length, np.int64)})
        assert np.array_equal(answer["each"], alone["each"])
        assert np.array_equal(answer["masked"], alone["masked"])


async def test_an_output_that_is_not_as_long_as_its_inputs_cannot_be_cut() -> None:
    class Halves(Sentences):
        def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
            outputs = super().__call__(inputs)
            return {**outputs, "each": outputs["each"][:, :, ::2]}

    failed = await run_together(Halves(), padding(), [request(1, 4, 1), request(1, 3, 2)])
    assert isinstance(failed, Failed)
    assert failed.reason == (
        "output 'each' has shape [2, 2, 3]: axis 2 must be as long as its inputs, which are "
        "padded to 5"
    )


async def test_outputs_that_are_not_declared_stay_as_they_come() -> None:
    answers = await run_together(Sentences(), padding(outputs={}), [request(2, 3, 1)])
    assert not isinstance(answers, Failed)
    assert answers[0]["each"].shape == (2, 2, 5)
