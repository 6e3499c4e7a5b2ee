"""Files and text of the command line, as tensors."""

from __future__ import annotations

import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from treadle.client.inputs import read_inputs, synthetic_inputs
from treadle.errors import InvalidRequestError, TreadleError
from treadle.serve.tensors import DTYPES, Array, Tensor, to_array


def metadata(*specs: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {"inputs": [{"name": n, "datatype": d, "shape": s} for n, d, s in specs]}


def read(datatype: str, shape: list[int], value: str) -> Array:
    """What one value becomes for a model with one input."""
    (tensor,) = read_inputs(metadata(("x", datatype, shape)), [value])
    assert (tensor.name, tensor.datatype) == ("x", datatype)
    return to_array(tensor)


def write_wav(file: Path, samples: list[list[int]], width: int = 2, rate: int = 16000) -> str:
    """A file of ``samples``, a list of channels at each moment."""
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(len(samples[0]) if samples else 1)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(
            b"".join(
                value.to_bytes(width, "little", signed=width > 1)
                for moment in samples
                for value in moment
            )
        )
    return str(file)


# JSON, declared shape -> values and shape
JSON_VALUES = [
    ("[1, 2.5]", [-1], [1.0, 2.5]),
    ("[1, 2.5]", [-1, -1], [[1.0, 2.5]]),
    ("[[1, 2.5]]", [-1, -1], [[1.0, 2.5]]),
    ("3", [], 3.0),
    ("3", [-1], [3.0]),
    (" [ ] ", [-1], []),
    ("[1, 2.5]", [-1, -1, -1], [1.0, 2.5]),
]


@pytest.mark.parametrize(("value", "shape", "expected"), JSON_VALUES)
def test_json_is_values_and_lacks_at_most_the_batch(
    value: str, shape: list[int], expected: object
) -> None:
    array = read("FP32", shape, value)
    assert array.dtype == np.float32
    assert array.tolist() == expected


@pytest.mark.parametrize("datatype", [d for d in DTYPES if d not in ("BYTES", "BOOL")])
def test_json_of_every_number_type(datatype: str) -> None:
    array = read(datatype, [-1], "[0, 1, 100]")
    assert array.dtype == DTYPES[datatype]
    assert array.tolist() == [0, 1, 100]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32"])
def test_a_number_too_large_for_its_float_becomes_infinite(datatype: str) -> None:
    assert read(datatype, [-1], "[1e39, -1e39]").tolist() == [float("inf"), float("-inf")]


def test_large_integers_are_exact() -> None:
    assert read("UINT64", [-1], f"[{2**64 - 1}, 1]").tolist() == [2**64 - 1, 1]
    assert read("INT64", [-1], f"[{2**63 - 1}, {-(2**63)}]").tolist() == [2**63 - 1, -(2**63)]


def test_json_truth() -> None:
    assert read("BOOL", [-1], "[true, false]").tolist() == [True, False]


def test_a_long_text_is_no_file_name() -> None:
    """File systems take names of 255 bytes; JSON on the command line may be longer."""
    values = list(range(1000))
    assert read("INT64", [-1], json.dumps(values)).tolist() == values
    assert read("BYTES", [-1], "word " * 1000).tolist() == [b"word " * 1000]


@pytest.mark.parametrize("text", ["", "plain text", "größer", '["a", "b"]', "a=b", "x\0y"])
def test_for_bytes_any_text_is_one_element(text: str) -> None:
    assert read("BYTES", [-1], text).tolist() == [text.encode()]
    assert read("BYTES", [], text).tolist() == text.encode()


@pytest.mark.parametrize("name", ["a.txt", "a.wav", "a.png", "a.npy", "a.json5", "a"])
def test_for_bytes_every_file_is_its_content(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00\xff content")
    assert read("BYTES", [-1], str(tmp_path / name)).tolist() == [b"\x00\xff content"]


def test_a_wav_file_is_its_samples_between_minus_one_and_one(tmp_path: Path) -> None:
    file = write_wav(tmp_path / "a.wav", [[0], [16384], [-32768], [32767]])
    array = read("FP32", [-1, -1], file)
    assert array.tolist() == [[0.0, 0.5, -1.0, pytest.approx(32767 / 32768)]]


def test_channels_are_averaged(tmp_path: Path) -> None:
    file = write_wav(tmp_path / "a.wav", [[16384, 0], [-32768, 32767], [32767, 32767]])
    array = read("FP32", [-1], file)
    assert array.tolist() == pytest.approx([0.25, -0.5 / 32768, 32767 / 32768])


@pytest.mark.parametrize(("width", "bits"), [(1, 8), (3, 24), (4, 32)])
def test_other_samples_than_of_16_bits_are_refused(tmp_path: Path, width: int, bits: int) -> None:
    file = write_wav(tmp_path / "a.wav", [[0]], width=width)
    with pytest.raises(InvalidRequestError, match=rf"input 'x': .*{bits}-bit samples; allowed: 16"):
        read("FP32", [-1], file)


@pytest.mark.parametrize("ending", ["png", "PNG", "jpg", "jpeg"])
def test_a_picture_is_rgb_height_by_width(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    Image.new("RGB", (3, 2), (255, 0, 0)).save(file)
    array = read("UINT8", [-1, -1, -1, 3], str(file))
    assert array.shape == (1, 2, 3, 3)
    if ending.lower() == "png":
        assert array.tolist() == [[[[255, 0, 0]] * 3] * 2]


def test_a_grey_or_transparent_picture_becomes_rgb(tmp_path: Path) -> None:
    Image.new("LA", (1, 1), (7, 128)).save(tmp_path / "a.png")
    assert read("FP32", [1, 1, 3], str(tmp_path / "a.png")).tolist() == [[[7, 7, 7]]]


def test_pictures_need_a_package_and_the_error_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (1, 1)).save(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(TreadleError, match=r"pip install 'treadle\[images\]'"):
        read("UINT8", [-1, -1, 3], str(tmp_path / "a.png"))


@pytest.mark.parametrize("datatype", [d for d in DTYPES if d not in ("BYTES", "BF16")])
def test_an_npy_file_is_its_array(tmp_path: Path, datatype: str) -> None:
    np.save(tmp_path / "a.npy", np.array([[0, 1]], DTYPES[datatype]))
    array = read(datatype, [-1, 2], str(tmp_path / "a.npy"))
    assert (array.dtype, array.tolist()) == (DTYPES[datatype], [[0, 1]])


def test_numbers_become_the_models_type(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0]))
    for datatype in ("FP16", "BF16", "FP32", "INT8", "UINT64"):
        assert read(datatype, [-1], str(tmp_path / "a.npy")).dtype == DTYPES[datatype]


def test_a_pickled_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(InvalidRequestError, match=r"input 'x': .*pickle"):
        read("FP32", [-1], str(tmp_path / "a.npy"))


# name of a file with nonsense in it, datatype
BROKEN = [
    ("a.wav", "FP32"),
    ("a.png", "UINT8"),
    ("a.jpg", "UINT8"),
    ("a.npy", "FP32"),
    ("a.txt", "FP32"),
    ("a", "INT64"),
]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"RIFF", b"\x93NUMPY", b"\x89PNG\r\n"])
@pytest.mark.parametrize(("name", "datatype"), BROKEN)
def test_a_broken_file_is_refused_with_its_name(
    tmp_path: Path, name: str, datatype: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequestError, match="input 'x'") as caught:
        read(datatype, [-1], str(tmp_path / name))
    assert name in str(caught.value)


# what cannot be a value of the type
IMPOSSIBLE = [
    ("FP32", "no such file"),
    ("FP32", "absent.wav"),
    ("FP32", "[1, 2"),
    ("FP32", "[[1, 2], [3]]"),
    ("FP32", '["a"]'),
    ("FP32", '{"a": 1}'),
    ("INT64", "null"),
    ("INT64", "[null]"),
    ("INT64", "[1.5]"),
    ("UINT8", "[256]"),
    ("UINT8", "[-1]"),
    ("INT64", f"[{2**63}]"),
    ("INT64", f"[{2**63}, -1]"),
    ("INT64", f"[{2**63}.0]"),
    ("BOOL", '"yes"'),
]


@pytest.mark.parametrize(("datatype", "value"), IMPOSSIBLE)
def test_what_does_not_fit_is_refused(datatype: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match="input 'x'"):
        read(datatype, [-1], value)


TWO = metadata(("a", "FP32", [-1]), ("b", "BYTES", [-1]))


def test_several_inputs_are_given_by_name() -> None:
    tensors = read_inputs(TWO, ["b=some=text", "a=[1, 2]"])
    assert {tensor.name: to_array(tensor).tolist() for tensor in tensors} == {
        "a": [1.0, 2.0],
        "b": [b"some=text"],
    }


@pytest.mark.parametrize("value", ["[1]", "c=[1]", "=[1]", "A=[1]"])
def test_which_of_several_inputs_must_be_said(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="as NAME=VALUE; inputs: a, b") as caught:
        read_inputs(TWO, ["b=x", value])
    assert repr(value) in str(caught.value)


def test_the_only_input_may_be_named() -> None:
    assert read("FP32", [-1], "x=[1, 2]").tolist() == [1.0, 2.0]
    assert read("BYTES", [-1], "y=[1, 2]").tolist() == [b"y=[1, 2]"]


def test_a_json_file_is_a_whole_request(tmp_path: Path) -> None:
    entries = [
        {"name": "a", "datatype": "FP32", "shape": [2], "data": [1, 2]},
        {"name": "b", "datatype": "BYTES", "shape": [1], "data": ["text"]},
    ]
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"inputs": entries}))
    tensors = read_inputs(TWO, [str(file)])
    assert [to_array(tensor).tolist() for tensor in tensors] == [[1.0, 2.0], [b"text"]]


def test_a_json_file_for_a_named_input_is_that_inputs_value(tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text("[1, 2]")
    assert read("BYTES", [-1], f"x={file}").tolist() == [b"[1, 2]"]
    assert read("FP32", [-1], f"x={file}").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("content", ["", "[]", '{"inputs": [{}]}'])
def test_a_json_file_that_is_no_request_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "request.json").write_text(content)
    with pytest.raises(InvalidRequestError, match="failed to parse the request JSON"):
        read_inputs(TWO, [str(tmp_path / "request.json")])


def test_a_json_file_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"absent\.json: No such file"):
        read_inputs(TWO, ["absent.json"])


@pytest.mark.parametrize("datatype", list(DTYPES))
def test_without_values_inputs_are_zeros_of_the_smallest_shape(datatype: str) -> None:
    (tensor,) = synthetic_inputs(metadata(("x", datatype, [-1, 2, -1])))
    assert isinstance(tensor, Tensor)
    expected = b"treadle" if datatype == "BYTES" else 0
    assert to_array(tensor).tolist() == [[[expected], [expected]]]
