"""A request held against what its model takes. The messages are worded as Triton words them."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InvalidRequestError
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.tensors import DTYPES, Tensor, pack_bytes
from treadle.serve.validate import check_bytes, check_inputs
from treadle.types import TensorSpec

from .strategies import NUMERIC

Shape = tuple[int, ...]


def model_of(*specs: TensorSpec, max_batch: int = 1) -> ServedModel:
    model = ServedModel(ModelConfig(name="m", factory="a:b", max_batch=max_batch))
    model.inputs = specs
    return model


def tensor(name: str, shape: Shape, datatype: str = "FP32") -> Tensor:
    if datatype == "BYTES":
        data = pack_bytes([b"text"] * math.prod(shape))
    else:
        data = bytes(math.prod(shape) * DTYPES[datatype].itemsize)
    return Tensor(name, datatype, shape, data)


X, Y = TensorSpec("x", "FP32", (-1, 4)), TensorSpec("y", "INT64", (-1, 2, -1))


def test_inputs_come_out_in_the_order_of_the_model() -> None:
    x, y = tensor("x", (3, 4)), tensor("y", (3, 2, 7), "INT64")
    for given_order in ([x, y], [y, x]):
        checked = check_inputs(model_of(X, Y), given_order)
        assert [id(t) for t in checked.tensors] == [id(x), id(y)]


def test_the_callers_own_list_stays_as_it_was() -> None:
    x, y = tensor("x", (3, 4)), tensor("y", (3, 2, 7), "INT64")
    tensors = [y, x]
    check_inputs(model_of(X, Y), tensors)
    assert [t.name for t in tensors] == ["y", "x"]


# names given, message
WRONG_NAMES = [
    ([], "expected 2 inputs but got 0 inputs for model 'm'. Missing: x, y"),
    (["x"], "expected 2 inputs but got 1 inputs for model 'm'. Missing: y"),
    (["y"], "expected 2 inputs but got 1 inputs for model 'm'. Missing: x"),
    (["x", "z"], "unexpected inference input 'z' for model 'm'; expected: x, y"),
    (["z", "y"], "unexpected inference input 'z' for model 'm'; expected: x, y"),
    (["x", "y", "z"], "unexpected inference input 'z' for model 'm'; expected: x, y"),
    (["x", "x"], "an input is given twice for model 'm'"),
    (["y", "y"], "an input is given twice for model 'm'"),
    (["x", "y", "x"], "an input is given twice for model 'm'"),
    (["x", "Y"], "unexpected inference input 'Y' for model 'm'; expected: x, y"),
]


@pytest.mark.parametrize("max_batch", [1, 8])
@pytest.mark.parametrize(("names", "message"), WRONG_NAMES)
def test_names(names: list[str], message: str, max_batch: int) -> None:
    right = {"x": tensor("x", (1, 4)), "y": tensor("y", (1, 2, 1), "INT64")}
    tensors = [right.get(name, tensor(name, (1, 4))) for name in names]
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs(model_of(X, Y, max_batch=max_batch), tensors)
    assert str(caught.value) == message


@pytest.mark.parametrize("datatype", [*NUMERIC, "BYTES"])
def test_datatypes(datatype: str) -> None:
    model = model_of(TensorSpec("x", datatype, (-1,)))
    assert check_inputs(model, [tensor("x", (2,), datatype)]).rows == 1
    other = "INT8" if datatype != "INT8" else "BYTES"
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs(model, [tensor("x", (2,), other)])
    assert str(caught.value) == (
        f"inference input 'x' data-type is '{other}', but model 'm' expects '{datatype}'"
    )


# declared, given -> whether it fits
SHAPES: list[tuple[Shape, Shape, bool]] = [
    ((), (), True),
    ((), (1,), False),
    ((3,), (3,), True),
    ((3,), (2,), False),
    ((3,), (), False),
    ((3,), (3, 1), False),
    ((3,), (1, 3), False),
    ((-1,), (0,), True),
    ((-1,), (1000,), True),
    ((-1,), (), False),
    ((-1, 4), (7, 4), True),
    ((-1, 4), (7, 5), False),
    ((-1, 4), (4, 7), False),
    ((-1, 4), (4,), False),
    ((2, -1, 3), (2, 9, 3), True),
    ((2, -1, 3), (1, 9, 3), False),
    ((0,), (0,), True),
    ((0,), (1,), False),
]


@pytest.mark.parametrize(("declared", "given_shape", "fits"), SHAPES)
def test_shapes(declared: Shape, given_shape: Shape, fits: bool) -> None:
    model = model_of(TensorSpec("x", "FP32", declared))
    if fits:
        checked = check_inputs(model, [tensor("x", given_shape)])
        assert (checked.rows, checked.batch_key) == (1, (given_shape,))
        return
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs(model, [tensor("x", given_shape)])
    expected, got = (str(list(shape)).replace(" ", "") for shape in (declared, given_shape))
    assert str(caught.value) == (
        f"unexpected shape for input 'x' for model 'm'. Expected {expected}, got {got}"
    )


def test_the_second_input_is_checked_like_the_first() -> None:
    with pytest.raises(InvalidRequestError, match="unexpected shape for input 'y'"):
        check_inputs(model_of(X, Y), [tensor("x", (1, 4)), tensor("y", (1, 3, 1), "INT64")])


@pytest.mark.parametrize("rows", [1, 2, 7, 8])
def test_the_first_dimension_of_a_batched_model_is_its_rows(rows: int) -> None:
    inputs = [tensor("x", (rows, 4)), tensor("y", (rows, 2, 5), "INT64")]
    checked = check_inputs(model_of(X, Y, max_batch=8), inputs)
    assert (checked.rows, checked.batch_key) == (rows, ((4,), (2, 5)))


@pytest.mark.parametrize("rows", [0, 9, 1000])
def test_a_batch_that_the_model_does_not_take_is_refused(rows: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_inputs(model_of(X, max_batch=8), [tensor("x", (rows, 4))])
    assert str(caught.value) == f"batch dimension is {rows}; model 'm' allows 1 to 8"


def test_all_inputs_have_the_same_rows() -> None:
    for given_order in (1, -1):
        inputs = [tensor("x", (3, 4)), tensor("y", (2, 2, 1), "INT64")][::given_order]
        with pytest.raises(InvalidRequestError) as caught:
            check_inputs(model_of(X, Y, max_batch=8), inputs)
        assert str(caught.value) == "input 'y' has batch dimension 2, input 'x' has 3"


def test_without_batches_inputs_may_differ_in_their_first_dimension() -> None:
    checked = check_inputs(model_of(X, Y), [tensor("x", (3, 4)), tensor("y", (2, 2, 1), "INT64")])
    assert checked.rows == 1
    assert checked.batch_key == ((3, 4), (2, 2, 1))


def test_a_model_that_takes_nothing_takes_a_request_without_inputs() -> None:
    assert check_inputs(model_of(), []).tensors == []


@given(
    st.lists(st.sampled_from([-1, 0, 1, 2, 3]), max_size=4).map(tuple),
    st.lists(st.integers(0, 3), max_size=4).map(tuple),
    st.integers(1, 3),
)
def test_only_equal_keys_may_share_a_batch(declared: Shape, given_shape: Shape, most: int) -> None:
    """Whatever passes fits what is declared, and its key has all but the rows."""
    if most > 1:
        declared = (-1, *declared)
    try:
        checked = check_inputs(
            model_of(TensorSpec("x", "INT8", declared), max_batch=most),
            [tensor("x", given_shape, "INT8")],
        )
    except InvalidRequestError:
        fits = len(declared) == len(given_shape) and all(
            want in (-1, got) for want, got in zip(declared, given_shape, strict=True)
        )
        assert not fits or (most > 1 and not 1 <= given_shape[0] <= most)
        return
    assert len(given_shape) == len(declared)
    assert all(want in (-1, got) for want, got in zip(declared, given_shape, strict=True))
    batched = most > 1
    assert checked.batch_key == ((given_shape[1:] if batched else given_shape),)
    assert checked.rows == (given_shape[0] if batched else 1)
    assert 1 <= checked.rows <= most


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (b"\0\0\0\0", 2, "input 'x': 1 elements where 2 are due"),
        (b"\x02\0\0\0a", 1, "input 'x': element 0 reaches past the end of the data"),
        (b"\0\0\0\0!", 1, "input 'x': 1 bytes left over after 1 elements"),
    ],
)
def test_lengths_that_lie_are_refused(data: bytes, count: int, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        check_bytes(Tensor("x", "BYTES", (count,), data), count)


def test_lengths_that_are_right_pass() -> None:
    check_bytes(Tensor("x", "BYTES", (2,), pack_bytes([b"", b"abc"])), 2)
