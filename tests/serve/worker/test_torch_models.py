"""PyTorch modules as models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.serve.tensors import DTYPES, Array
from treadle.serve.worker.messages import Loaded, PlainSpec

from .hosting import LocalHost, model

PAIR: tuple[PlainSpec, ...] = (("x", "FP32", (-1, 2)), ("y", "FP32", (-1, 2)))
SUMS: tuple[PlainSpec, ...] = (("plus", "FP32", (-1, 2)), ("minus", "FP32", (-1, 2)))
X, Y = np.array([[5.0, 6.0]], np.float32), np.array([[1.0, 2.0]], np.float32)


def load_returning(host: LocalHost, form: str) -> None:
    setup = model(
        "torch_models:returns", inputs=PAIR, outputs=SUMS, parameters={"form": form}, max_batch=8
    )
    assert host.load(setup) == Loaded({"m": (PAIR, SUMS)})


@pytest.mark.parametrize("form", ["dict", "tuple", "list", "transposed"])
def test_outputs_come_by_name_or_in_order(host: LocalHost, form: str) -> None:
    load_returning(host, form)
    outputs = host.run(x=X, y=Y)
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "plus": [[6.0, 8.0]],
        "minus": [[4.0, 4.0]],
    }


def test_inputs_are_given_in_their_declared_order(host: LocalHost) -> None:
    load_returning(host, "tuple")
    assert host.run(y=Y, x=X)["minus"].tolist() == [[4.0, 4.0]]


def test_a_parameter_may_be_an_output(host: LocalHost) -> None:
    load_returning(host, "parameter")
    assert host.run(x=X, y=Y)["minus"].tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("form", "said"), [("one", "1 outputs where 2"), ("three", "3 outputs where 2")]
)
def test_as_many_outputs_as_are_declared(host: LocalHost, form: str, said: str) -> None:
    load_returning(host, form)
    assert said in host.failure(x=X, y=Y)


def test_what_is_no_tensor_is_a_failure(host: LocalHost) -> None:
    load_returning(host, "number")
    assert "TypeError" in host.failure(x=X, y=Y)


@pytest.mark.parametrize("datatype", [d for d in DTYPES if d not in ("BYTES", "BOOL")])
def test_datatypes(host: LocalHost, datatype: str) -> None:
    spec = (("x", datatype, (-1,)),)
    setup = model("torch_models:doubles", inputs=spec, outputs=(("y", datatype, (-1,)),))
    assert isinstance(host.load(setup), Loaded)
    result: Array = host.run(x=np.array([1, 3, 0], DTYPES[datatype]))["y"]
    assert result.dtype == DTYPES[datatype]
    assert result.tolist() == [2, 6, 0]


def test_bfloat16_keeps_its_bits(host: LocalHost) -> None:
    spec = (("x", "BF16", (-1, 2)),)
    setup = model("torch_models:doubles", inputs=spec, outputs=(("y", "BF16", (-1, 2)),))
    assert isinstance(host.load(setup), Loaded)
    x = np.array([[1.5, -0.0], [float("inf"), 3e38]], DTYPES["BF16"])
    assert host.run(x=x)["y"].tolist() == [[3.0, 0.0], [float("inf"), float("inf")]]


def test_a_module_neither_trains_nor_records_gradients(host: LocalHost) -> None:
    inputs, outputs = (("x", "FP32", (1,)),), (("y", "BOOL", (3,)),)
    assert isinstance(
        host.load(model("torch_models:modes", inputs=inputs, outputs=outputs)), Loaded
    )
    assert host.run(x=np.ones(1, np.float32))["y"].tolist() == [False, False, False]


def test_a_module_gets_its_share_of_threads(host: LocalHost) -> None:
    import torch

    before: Any = torch.get_num_threads()
    try:
        setup = model("torch_models:declared", threads=before + 1)
        assert isinstance(host.load(setup), Loaded)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_text_is_nothing_for_a_module(host: LocalHost) -> None:
    inputs, outputs = (("x", "BYTES", (1,)),), (("y", "FP32", (1,)),)
    setup = model("torch_models:doubles", inputs=inputs, outputs=outputs)
    assert isinstance(host.load(setup), Loaded)
    assert "TypeError" in host.failure(x=np.array([b"text"], object))
