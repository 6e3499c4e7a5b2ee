from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from treadle.bench.loadtest.bodies import make_bodies
from treadle.bench.loadtest.loads import Load
from treadle.client.node import EncodedRequest
from treadle.errors import InvalidRequestError
from treadle.serve.oip import decode_request
from treadle.serve.tensors import DTYPES, Array, to_array


def metadata(**inputs: str) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [-1, 3]}
            for name, datatype in inputs.items()
        ]
    }


def bodies(about: dict[str, Any], *inputs: str, **options: Any) -> tuple[EncodedRequest, ...]:
    given: dict[str, Any] = {
        "examples": (),
        "pool": 4,
        "seed": 1,
        "timeout_seconds": None,
        "as_json": False,
        "priority": None,
        **options,
    }
    load = Load(model="m", inputs=inputs, priority=given.pop("priority"))
    return make_bodies(about, load, given.pop("examples"), **given)


def arrays(body: EncodedRequest) -> dict[str, Array]:
    length = body.headers.get("Inference-Header-Content-Length")
    request = decode_request(body.body, int(length) if length else None)
    return {tensor.name: to_array(tensor) for tensor in request.inputs}


def test_without_inputs_there_is_a_pool_of_different_ones() -> None:
    made = bodies(metadata(x="FP32"))
    assert len({body.body for body in made}) == 4
    assert made == bodies(metadata(x="FP32"))
    assert made != bodies(metadata(x="FP32"), seed=2)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("datatype", DTYPES)
def test_every_datatype_can_be_made_and_sent(datatype: str, as_json: bool) -> None:
    for body in bodies(metadata(x=datatype), as_json=as_json):
        array = arrays(body)["x"]
        assert (array.shape, array.dtype) == ((1, 3), DTYPES[datatype])


def test_binary_and_json_bodies_hold_the_same() -> None:
    binary, text = (bodies(metadata(x="INT32", y="FP32"), as_json=form) for form in (False, True))
    for one, other in zip(map(arrays, binary), map(arrays, text), strict=True):
        for name in ("x", "y"):
            np.testing.assert_array_equal(one[name], other[name])
    assert "Inference-Header-Content-Length" not in text[0].headers


def test_examples_are_sent_where_no_input_is_given() -> None:
    (body,) = bodies(metadata(x="INT32"), examples=("[1, 2, 3]",))
    assert arrays(body)["x"].tolist() == [[1, 2, 3]]


def test_inputs_are_sent_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.array([[4, 5, 6]], np.int32))
    made = bodies(metadata(x="INT32"), "[1, 2, 3]", f"x={file}", examples=("[0, 0, 0]",))
    assert [arrays(body)["x"].tolist() for body in made] == [[[1, 2, 3]], [[4, 5, 6]]]


def test_each_of_several_inputs_has_its_own_turn() -> None:
    about = metadata(x="INT32", y="INT32")
    made = bodies(about, "x=[1, 1, 1]", "y=[9, 9, 9]", "x=[2, 2, 2]")
    assert [{k: v[0, 0] for k, v in arrays(body).items()} for body in made] == [
        {"x": 1, "y": 9},
        {"x": 2, "y": 9},
    ]


def test_an_input_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="input 'x': soon: neither a file nor JSON"):
        bodies(metadata(x="FP32"), "soon")


def test_parameters_are_sent_along() -> None:
    (body, *_) = bodies(
        metadata(x="FP32"), priority="background", timeout_seconds=0.5, as_json=True
    )
    assert orjson.loads(body.body)["parameters"] == {"priority": 3, "timeout": 500_000}
