"""What may be said of padding, and what it makes of a request."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InvalidRequestError
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.padding import Bucket, PaddedTensor, PaddingConfig, cut
from treadle.serve.tensors import DTYPES, Array, Tensor, from_array, to_array
from treadle.serve.validate import CheckedInputs, check_inputs
from treadle.types import TensorSpec

from .strategies import NUMERIC

TOKENS = TensorSpec("tokens", "INT64", (-1, -1))
AUDIO = TensorSpec("audio", "FP32", (-1, 2, -1))
TEXT = TensorSpec("text", "BYTES", (-1, -1))
LENGTHS = TensorSpec("lengths", "INT64", (-1,))
LOGITS = TensorSpec("logits", "FP16", (-1, -1, 3))
INPUTS, OUTPUTS = (TOKENS, AUDIO, TEXT, LENGTHS), (LOGITS, TEXT)


def padding(**changes: Any) -> PaddingConfig:
    return PaddingConfig(**{"lengths": (4, 8, 16), "inputs": {"tokens": 1}, **changes})


GOOD = [
    padding(),
    padding(inputs={"tokens": 1, "audio": 2}, outputs={"logits": 1}),
    padding(fill={"tokens": -1}, length_input="lengths"),
    padding(inputs={"audio": 2}, fill={"audio": -math.inf}),
    padding(inputs={"audio": 2}, fill={"audio": 0.1}),
]


@pytest.mark.parametrize("config", GOOD, ids=range(len(GOOD)))
def test_what_fits_a_model(config: PaddingConfig) -> None:
    config.check(INPUTS, OUTPUTS)
    config.check((), ())


# what is configured, what the error says
BAD = [
    ({"lengths": (4, 4)}, "lengths: [4, 4]; allowed: each greater than the last"),
    ({"fill": {"mask": 1}}, "fill: 'mask'; allowed: tokens"),
    ({"fill": {"tokens": 0.5}}, "fill: tokens: 0.5; allowed: any INT64"),
    ({"fill": {"tokens": 2**63}}, "fill: tokens: 9223372036854775808; allowed: any INT64"),
    ({"fill": {"tokens": math.nan}}, "fill: tokens: nan; allowed: any INT64"),
    (
        {"inputs": {"audio": 2}, "fill": {"audio": 1e39}},
        "fill: audio: 1e+39; allowed: any FP32",
    ),
    ({"length_input": "tokens"}, "length_input: 'tokens' is padded itself"),
    (
        {"length_input": "size"},
        "length_input: no input 'size'; there are: tokens, audio, text, lengths",
    ),
    (
        {"length_input": "audio"},
        "length_input: 'audio' is FP32 of shape [-1, 2, -1]; allowed: INT64 of shape [-1]",
    ),
    (
        {"inputs": {"words": 1}},
        "inputs: 'words' is none of the model's; there are: tokens, audio, text, lengths",
    ),
    ({"inputs": {"text": 1}}, "inputs: 'text' is BYTES; allowed: numbers"),
    (
        {"inputs": {"audio": 1}},
        "inputs: audio = 1: its shape is [-1, 2, -1]; allowed: an axis that is -1 there",
    ),
    (
        {"inputs": {"tokens": 2}},
        "inputs: tokens = 2: its shape is [-1, -1]; allowed: an axis that is -1 there",
    ),
    (
        {"outputs": {"logits": 2}},
        "outputs: logits = 2: its shape is [-1, -1, 3]; allowed: an axis that is -1 there",
    ),
    ({"outputs": {"text": 1}}, "outputs: 'text' is BYTES; allowed: numbers"),
]


@pytest.mark.parametrize(("changes", "said"), BAD)
def test_what_does_not_fit_a_model(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - all of it is compared
        padding(**changes).check(INPUTS, OUTPUTS)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("length", "bucket"), [(0, 4), (1, 4), (4, 4), (5, 8), (16, 16), (17, None)]
)
def test_the_bucket_is_the_smallest_that_holds_a_request(length: int, bucket: int | None) -> None:
    found = padding().bucket(length)
    assert (found and found.length) == bucket


def ask(length: int, *, mask: int | None = None, rows: int = 1, width: int = 2) -> CheckedInputs:
    config = padding(inputs={"tokens": 1, "mask": 1})
    model = ServedModel(ModelConfig(name="m", factory="a:b", max_batch=8, padding=config))
    model.inputs = (TOKENS, TensorSpec("mask", "BOOL", (-1, -1)), TensorSpec("w", "FP32", (-1, -1)))
    arrays: dict[str, Array] = {
        "tokens": np.zeros((rows, length), np.int64),
        "mask": np.zeros((rows, length if mask is None else mask), np.bool_),
        "w": np.zeros((rows, width), np.float32),
    }
    return check_inputs(model, [from_array(name, array) for name, array in arrays.items()])


def test_requests_of_one_bucket_may_share_a_batch() -> None:
    first, second, other, larger = ask(5), ask(8, rows=3), ask(5, width=3), ask(9)
    assert (first.length, first.bucket, second.length, second.bucket) == (5, 8, 8, 8)
    assert first.batch_key == second.batch_key
    assert len({first.batch_key, other.batch_key, larger.batch_key}) == 3


def test_a_request_that_no_bucket_holds_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ask(17)
    assert str(caught.value) == ("the inputs tokens, mask are 17 long; model 'm' takes at most 16")


def test_inputs_that_are_padded_together_are_equally_long() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ask(5, mask=6)
    assert str(caught.value) == (
        "input 'mask' is 6 long, input 'tokens' is 5; they are padded together and must be "
        "equally long"
    )


def test_clients_are_not_asked_for_the_lengths() -> None:
    config = padding(length_input="lengths")
    assert config.asked_of_clients(INPUTS) == (TOKENS, AUDIO, TEXT)
    assert padding().asked_of_clients(INPUTS) == INPUTS


@given(
    datatype=st.sampled_from(NUMERIC),
    shape=st.lists(st.integers(0, 3), min_size=2, max_size=4),
    more=st.integers(0, 3),
    data=st.data(),
)
def test_what_is_padded_and_cut_is_as_it_was(
    datatype: str, shape: list[int], more: int, data: st.DataObject
) -> None:
    """For every type, rank and axis; and what was added is the fill, every element of it."""
    axis = data.draw(st.integers(1, len(shape) - 1))
    length, dtype = shape[axis], DTYPES[datatype]
    had = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    config = PaddingConfig(lengths=(length + more,), inputs={"x": axis}, fill={"x": 1})
    padded = Bucket(config, length + more).pad(from_array("x", had))
    padded_shape = tuple(n + more if i == axis else n for i, n in enumerate(shape))
    place = bytearray(b"\xff" * len(padded))
    if isinstance(padded, PaddedTensor):
        padded.copy_to(memoryview(place))
    else:
        place[:] = padded
    whole = Tensor("x", datatype, padded_shape, place)
    rest = to_array(whole)[(slice(None),) * axis + (slice(length, None),)]
    assert rest.shape[axis] == more
    assert np.all(rest == dtype.type(1))
    back = cut(whole, axis, length)
    assert (back.datatype, back.shape, bytes(back.data)) == (datatype, tuple(shape), had.tobytes())
