"""The small request that a user may paste."""

from __future__ import annotations

import json
import math

import pytest

from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.oip import decode_request
from treadle.serve.sample import sample_body, sample_inputs
from treadle.serve.tensors import DTYPES
from treadle.serve.validate import check_inputs
from treadle.types import TensorSpec


@pytest.mark.parametrize("datatype", list(DTYPES))
@pytest.mark.parametrize("shape", [(), (-1,), (3,), (-1, 4), (2, -1, 2), (0,), (4, 4)])
@pytest.mark.parametrize("max_batch", [1, 8])
def test_the_model_takes_its_sample(datatype: str, shape: tuple[int, ...], max_batch: int) -> None:
    if max_batch > 1:
        shape = (-1, *shape)
    model = ServedModel(ModelConfig(name="m", factory="a:b", max_batch=max_batch))
    model.inputs = (TensorSpec("x", datatype, shape), TensorSpec("y", "BYTES", (-1,)))
    request = decode_request(sample_body(model.inputs).encode(), None)
    assert check_inputs(model, request.inputs).rows == 1


def test_free_dimensions_are_one() -> None:
    (entry,) = json.loads(sample_body([TensorSpec("x", "INT64", (-1, 2, -1))]))["inputs"]
    assert entry == {"name": "x", "datatype": "INT64", "shape": [1, 2, 1], "data": [1, 1]}


@pytest.mark.parametrize("shape", [(17,), (-1, 17), (4, 5), (1000, 1000)])
def test_a_large_input_makes_no_sample(shape: tuple[int, ...]) -> None:
    assert math.prod(abs(size) for size in shape) > 16
    specs = [TensorSpec("small", "FP32", (1,)), TensorSpec("large", "FP32", shape)]
    assert sample_body(specs) == ""


def test_no_inputs_make_no_sample() -> None:
    assert sample_body([]) == ""


@pytest.mark.parametrize("datatype", list(DTYPES))
@pytest.mark.parametrize("shape", [(-1,), (-1, 4), (-1, 2, -1)])
def test_inputs_of_many_rows_are_what_the_model_takes(
    datatype: str, shape: tuple[int, ...]
) -> None:
    model = ServedModel(ModelConfig(name="m", factory="a:b", max_batch=8))
    model.inputs = (TensorSpec("x", datatype, shape), TensorSpec("y", "BYTES", (-1,)))
    made = sample_inputs(model.inputs, 8)
    assert made[0].shape == (8, *(max(1, size) for size in shape[1:]))
    assert check_inputs(model, made).rows == 8
