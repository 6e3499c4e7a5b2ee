"""Bodies that are nothing but the data of a model's only input."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.errors import InvalidRequestError
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.oip import decode_raw_request
from treadle.serve.tensors import to_array
from treadle.serve.validate import check_inputs
from treadle.types import TensorSpec

# declared shape, elements sent -> shape understood
SHAPES = [
    ((-1,), 6, (6,)),
    ((6,), 6, (6,)),
    ((-1, 3), 6, (2, 3)),
    ((2, -1), 6, (2, 3)),
    ((-1, -1), 6, (1, 6)),
    ((-1, 2, -1), 6, (1, 2, 3)),
    ((2, 3), 6, (2, 3)),
    ((), 1, ()),
    ((-1,), 0, (0,)),
    ((-1, 3), 0, (0, 3)),
]


@pytest.mark.parametrize(("declared", "count", "understood"), SHAPES)
def test_the_shape_is_told_from_the_size(
    declared: tuple[int, ...], count: int, understood: tuple[int, ...]
) -> None:
    body = np.arange(count, dtype=np.float32).tobytes()
    request = decode_raw_request(body, [TensorSpec("x", "FP32", declared)])
    (tensor,) = request.inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", "FP32", understood)
    assert to_array(tensor).ravel().tolist() == list(range(count))


def test_the_answer_is_binary_too() -> None:
    assert decode_raw_request(b"", [TensorSpec("x", "FP32", (-1,))]).binary_outputs is True


@pytest.mark.parametrize(("declared", "shape"), [((-1,), (1,)), ((-1, 1), (1, 1)), ((), ())])
@pytest.mark.parametrize("body", [b"", b"text", b"\0\xff" * 1000])
def test_for_a_text_input_the_body_is_one_element(
    declared: tuple[int, ...], shape: tuple[int, ...], body: bytes
) -> None:
    (tensor,) = decode_raw_request(body, [TensorSpec("x", "BYTES", declared)]).inputs
    assert tensor.shape == shape
    assert to_array(tensor).ravel().tolist() == [body]


@pytest.mark.parametrize("count", [0, 2, 3])
def test_only_a_model_with_one_input_takes_such_bodies(count: int) -> None:
    specs = [TensorSpec(f"x{n}", "FP32", (-1,)) for n in range(count)]
    with pytest.raises(InvalidRequestError, match=f"one input; this one has {count}"):
        decode_raw_request(b"", specs)


def test_two_free_dimensions_cannot_be_told_from_one_size() -> None:
    with pytest.raises(InvalidRequestError, match="the 2 free dimensions of 'x'"):
        decode_raw_request(bytes(24), [TensorSpec("x", "FP32", (-1, -1, -1))])


def accept(spec: TensorSpec, body: bytes, max_batch: int) -> None:
    """All that a raw body goes through before it may share memory with others."""
    model = ServedModel(ModelConfig(name="m", factory="a:b", max_batch=max_batch))
    model.inputs = (spec,)
    check_inputs(model, decode_raw_request(body, [spec]).inputs)


# declared shape, bytes sent
WRONG_SIZES = [
    ((-1,), 5),
    ((-1, 3), 13),
    ((-1, 3), 4),
    ((3,), 8),
    ((3,), 16),
    ((3,), 0),
    ((), 0),
    ((), 8),
    ((0, -1), 4),
]


@pytest.mark.parametrize(("declared", "nbytes"), WRONG_SIZES)
def test_a_size_that_fills_no_shape_is_refused(declared: tuple[int, ...], nbytes: int) -> None:
    """Else it would spoil the batch of others, and they would be told that the model failed."""
    spec = TensorSpec("x", "FP32", declared)
    with pytest.raises(InvalidRequestError, match="x"):
        accept(spec, bytes(nbytes), max_batch=1)
    if declared and declared[0] == -1:
        with pytest.raises(InvalidRequestError, match="x"):
            accept(spec, bytes(nbytes), max_batch=8)


def test_truth_values_are_zero_and_one() -> None:
    with pytest.raises(InvalidRequestError, match="0 and 1"):
        accept(TensorSpec("x", "BOOL", (-1,)), b"\x00\x01\x02", max_batch=1)
