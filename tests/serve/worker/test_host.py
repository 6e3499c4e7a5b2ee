"""A batch in the worker: inputs from the arena, checked outputs back into it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from treadle.serve.tensors import DTYPES, bytes_ends
from treadle.serve.worker import messages
from treadle.serve.worker.messages import Done, Failed, Loaded, LoadFailed

from .hosting import FLOATS, RESULT, LocalHost, collect, model

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def returning(host: LocalHost, what: str, max_batch: int = 8, datatype: str = "FP32") -> None:
    parameters = {"what": what, "datatype": datatype}
    setup = model("worker_models:Returns", parameters=parameters, max_batch=max_batch)
    assert isinstance(host.load(setup), Loaded)


@pytest.mark.parametrize("what", ["right", "extra"])
def test_what_is_declared_is_returned_and_nothing_else(host: LocalHost, what: str) -> None:
    returning(host, what)
    outputs = host.run(rows=2, x=X)
    assert {name: array.tolist() for name, array in outputs.items()} == {"y": [[0, 0], [0, 0]]}


@pytest.mark.parametrize("what", ["transposed", "its input"])
def test_outputs_arrive_in_row_major_order(host: LocalHost, what: str) -> None:
    returning(host, what)
    assert host.run(rows=2, x=X)["y"].tolist() == X.tolist()


def test_python_lists_are_as_good_as_arrays(host: LocalHost) -> None:
    returning(host, "list", datatype="FP64")
    assert host.run(rows=2, x=X)["y"].tolist() == [[1.0, 2.0]] * 2


# what the model returns, what the failure says
WRONG = [
    ("other name", "the model did not return its output 'y'"),
    ("empty", "the model did not return its output 'y'"),
    ("nothing", "TypeError"),
    ("other type", "output 'y' is FP64, declared as FP32"),
    ("no type", "no protocol datatype holds numpy type complex64"),
    ("other rank", "output 'y' has shape [2, 2, 1], declared as [-1, 2]"),
    ("other size", "output 'y' has shape [2, 3], declared as [-1, 2]"),
    ("more rows", "output 'y' has 3 rows for a batch of 2"),
    ("texts", "output 'y' is BYTES, declared as FP32"),
]


@pytest.mark.parametrize(("what", "said"), WRONG)
def test_wrong_outputs(host: LocalHost, what: str, said: str) -> None:
    returning(host, what)
    assert said in host.failure(rows=2, x=X)


def test_a_bytes_output_holds_text_or_bytes(host: LocalHost) -> None:
    returning(host, "no texts", datatype="BYTES")
    assert "bytes or text, not int" in host.failure(rows=2, x=X)


def test_without_batches_the_first_dimension_is_the_models_own(host: LocalHost) -> None:
    returning(host, "more rows", max_batch=1)
    assert host.run(x=X)["y"].shape == (3, 2)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_of_text_say_where_each_ends(host: LocalHost, rows: int) -> None:
    returning(host, "texts", datatype="BYTES")
    answer = host.answer(rows=rows, x=np.zeros((rows, 2), np.float32))
    assert isinstance(answer, Done)
    (place,) = answer.outputs
    data = bytes(host.outputs.view[place.offset : place.offset + place.nbytes])
    assert list(place.row_ends) == bytes_ends(data, 2 * rows)[1::2]
    start = 0
    for row, end in enumerate(place.row_ends):
        assert data[start:end] == bytes([row, 0, 0, 0]) + b"a" * row + bytes(4)
        start = end
    assert start == place.nbytes


def test_rows_without_any_text_all_end_at_once(host: LocalHost) -> None:
    inputs, outputs = (("x", "BYTES", (-1, -1)),), (("y", "BYTES", (-1, -1)),)
    host.load(model("worker_models:echoes", inputs=inputs, outputs=outputs, max_batch=8))
    answer = host.answer(rows=3, x=np.empty((3, 0), object))
    assert isinstance(answer, Done)
    assert (answer.outputs[0].nbytes, answer.outputs[0].row_ends) == (0, (0, 0, 0))


def test_without_batches_text_says_no_rows(host: LocalHost) -> None:
    returning(host, "texts", max_batch=1, datatype="BYTES")
    answer = host.answer(x=X)
    assert isinstance(answer, Done)
    assert answer.outputs[0].row_ends == ()


def test_outputs_do_not_overlap_and_are_aligned(host: LocalHost) -> None:
    outputs = (("plus", "FP32", (-1, 2)), ("minus", "FP32", (-1, 2)))
    inputs = (("x", "FP32", (-1, 2)), ("y", "FP32", (-1, 2)))
    parameters = {"form": "tuple"}
    host.load(model("torch_models:returns", inputs=inputs, outputs=outputs, parameters=parameters))
    answer = host.answer(x=X, y=X)
    assert isinstance(answer, Done)
    first, second = answer.outputs
    assert second.offset >= first.offset + first.nbytes
    assert {place.offset % 64 for place in answer.outputs} == {0}


@pytest.mark.parametrize("rows", [1, 1000, 300_000])
def test_arenas_grow_with_the_batch(host: LocalHost, rows: int) -> None:
    host.load(model(max_batch=4096))
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    for _ in range(2):
        assert np.array_equal(host.run(rows=rows, x=x)["y"], x * 2)
    assert host.run(rows=2, x=X)["y"].tolist() == (X * 2).tolist()


def test_the_answer_carries_the_batch_and_its_times(host: LocalHost) -> None:
    host.load(model())
    answer = host.answer(x=X)
    assert isinstance(answer, Done)
    assert answer.batch == 1
    assert min(answer.input_seconds, answer.run_seconds, answer.output_seconds) >= 0
    assert collect(host.outputs, answer.outputs)["y"].tolist() == (X * 2).tolist()


# first element of the input, what the failure says
MISBEHAVIOUR = [(-1, "ValueError: cannot read this"), (-3, "x" * 1000)]


@pytest.mark.parametrize(("what", "said"), MISBEHAVIOUR)
def test_whatever_a_model_raises_is_the_batchs_failure(
    host: LocalHost, what: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host.load(model("worker_models:Misbehaves"))
    x = np.array([[what, 0]], np.float32)
    assert said in host.failure(x=x)
    assert "Traceback" in capsys.readouterr().err  # for the log
    assert host.run(x=X)["y"].tolist() == (X * 2).tolist()


@pytest.mark.parametrize("what", [-2, -3])
def test_every_failure_can_be_sent(host: LocalHost, what: int) -> None:
    """Also one with text that is no UTF-8, as of a file name, and one without end."""
    host.load(model("worker_models:Misbehaves"))
    answer = host.answer(x=np.array([[what, 0]], np.float32))
    assert isinstance(answer, Failed)
    assert len(messages.encode(answer)) < messages.MAX_MESSAGE_BYTES


def test_every_answer_can_be_sent(host: LocalHost) -> None:
    """Also that of a model with many text outputs to the largest batch there is."""
    host.load(model("worker_models:ManyTexts", max_batch=4096))
    answer = host.answer(rows=4096, x=np.zeros((4096, 2), np.float32))
    data = messages.encode_answer(answer)
    assert len(data) <= messages.MAX_MESSAGE_BYTES
    (sent,) = messages.decode_from_worker(messages.encode([msgspec.Raw(data)]))
    assert sent == Failed(answer.batch, "4096 rows of 8 BYTES outputs are too many")


def test_input_that_does_not_fill_its_shape_is_a_failure(host: LocalHost) -> None:
    host.load(model())
    placed = messages.Slice("x", "FP32", (3, 2), 64, 20)
    host.inputs.reserve(4096)
    answer = host.host.run(messages.Run(9, 0, "m", 1, (placed,)))
    assert isinstance(answer, Failed)
    assert answer.batch == 9


def test_several_models_share_a_host(host: LocalHost) -> None:
    answer = host.load(model(name="a"), model("torch_models:declared", name="b", max_batch=4))
    assert answer == Loaded({"a": (FLOATS, RESULT), "b": (FLOATS, RESULT)})
    for name in ("a", "b"):
        assert host.run(name, rows=2, x=X)["y"].tolist() == (X * 2).tolist()


def test_the_model_that_could_not_be_loaded_is_named(host: LocalHost) -> None:
    answer = host.load(model(name="good"), model("worker_models:raises", name="bad"))
    assert isinstance(answer, LoadFailed)
    assert answer.model == "bad"


@pytest.mark.parametrize("datatype", list(DTYPES))
def test_every_datatype_arrives_as_its_numpy_type(host: LocalHost, datatype: str) -> None:
    x = np.array([b"a", b"", b"\xff"] if datatype == "BYTES" else [1, 0, 1], DTYPES[datatype])
    inputs, outputs = (("x", datatype, (-1,)),), (("y", datatype, (-1,)),)
    host.load(model("worker_models:echoes", inputs=inputs, outputs=outputs))
    y = host.run(x=x)["y"]
    assert (y.dtype, y.tolist()) == (x.dtype, x.tolist())
