"""``treadle infer``: one request by hand, from JSON, text and files."""

from __future__ import annotations

import json
import wave
from typing import Any, Protocol

import numpy as np
import pytest

from .conftest import RunHere, StartNode
from .nodes import Home, RunningNode
from .test_configuration import failed

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
p99_seconds = 0.25
worker = "all"
max_batch = 4

[[model]]
name = "text"
factory = "plain:Echo"
parameters = { datatype = "BYTES", rank = 1 }
examples = ["example.txt"]
worker = "all"

[[model]]
name = "sums"
factory = "plain:SumAndDifference"
worker = "all"

[[model]]
name = "sound"
factory = "plain:Sizes"
inputs = [{ name = "x", datatype = "FP32", shape = [-1, -1] }]
outputs = [
    { name = "shape", datatype = "INT64", shape = [2] },
    { name = "sum", datatype = "FP64", shape = [1] },
]
worker = "all"

[[model]]
name = "picture"
factory = "plain:Sizes"
inputs = [{ name = "x", datatype = "UINT8", shape = [-1, -1, 3] }]
outputs = [
    { name = "shape", datatype = "INT64", shape = [3] },
    { name = "sum", datatype = "FP64", shape = [1] },
]
worker = "all"

[[model]]
name = "broken"
factory = "unloadable:raises"
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    def prepare(home: Home) -> None:
        (home.folder / "example.txt").write_text("an example")

    return start_shared_node(CONFIGURATION, prepare=prepare)


class Outputs(Protocol):
    def __call__(self, model: str, *options: str) -> dict[str, Any]: ...


@pytest.fixture
def outputs(node: RunningNode, run_here: RunHere) -> Outputs:
    """Runs ``treadle infer`` and returns the outputs that it prints."""

    def run(model: str, *options: str) -> dict[str, Any]:
        process = run_here(node.home, "infer", model, *options, "--json")
        assert process.returncode == 0, process.stderr
        content: dict[str, Any] = json.loads(process.stdout)
        return content

    return run


def test_infer_takes_json_and_prints_for_people(node: RunningNode) -> None:
    process = node.home.treadle("infer", "step", "--input", "[[1], [2]]")
    assert process.returncode == 0, process.stderr
    assert process.stdout == "y  int64[2, 1]\n  [[2]\n   [3]]\n"
    assert " ms" in process.stderr


@pytest.mark.parametrize("given", ["[[1], [2]]", "x=[[1], [2]]"])
def test_infer_takes_json_and_gives_json(outputs: Outputs, given: str) -> None:
    assert outputs("step", "--input", given) == {"y": [[2], [3]]}


def test_infer_takes_each_input_by_name(outputs: Outputs) -> None:
    answer = outputs("sums", "-i", "b=[1, 1, 1, 1]", "-i", "a=[1, 2, 3, 4]")
    assert answer == {"sum": [[2, 3, 4, 5]], "difference": [[0, 1, 2, 3]]}


@pytest.mark.parametrize("text", ["weave", "wöven", '{"a": 1}', ""])
def test_infer_takes_text_as_it_is(outputs: Outputs, text: str) -> None:
    assert outputs("text", "--input", text) == {"y": [text]}


def test_infer_takes_any_file_as_text(node: RunningNode, outputs: Outputs) -> None:
    file = node.home.folder / "pattern.c"
    file.write_text("int main;\n")
    assert outputs("text", "--input", str(file)) == {"y": ["int main;\n"]}


def test_infer_takes_arrays(node: RunningNode, outputs: Outputs) -> None:
    file = node.home.folder / "x.npy"
    np.save(file, np.array([[5], [6]], np.int64))
    assert outputs("step", "--input", str(file)) == {"y": [[6], [7]]}


def test_infer_takes_sound(node: RunningNode, outputs: Outputs) -> None:
    file = node.home.folder / "sound.wav"
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(np.array([[16384, 0], [0, 16384], [-32768, 0]], "<i2").tobytes())
    assert outputs("sound", "--input", str(file)) == {"shape": [1, 3], "sum": [0.0]}


def test_infer_takes_pictures(node: RunningNode, outputs: Outputs) -> None:
    image = pytest.importorskip("PIL.Image")
    file = node.home.folder / "picture.png"
    image.fromarray(np.full((2, 5, 3), 3, np.uint8)).save(file)
    assert outputs("picture", "--input", str(file)) == {"shape": [2, 5, 3], "sum": [90.0]}


def test_infer_takes_a_whole_request_from_a_file(node: RunningNode, outputs: Outputs) -> None:
    file = node.home.folder / "request.json"
    given = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [8]}
    file.write_text(json.dumps({"inputs": [given]}))
    assert outputs("step", "--input", str(file)) == {"y": [[9]]}


def test_infer_without_input_sends_the_models_example(outputs: Outputs) -> None:
    assert outputs("text") == {"y": ["an example"]}


def test_infer_without_input_or_example_sends_zeros(outputs: Outputs) -> None:
    assert outputs("step") == {"y": [[1]]}


def test_infer_takes_priority_and_timeout(outputs: Outputs) -> None:
    options = ("--priority", "background", "--timeout", "20")
    assert outputs("step", "-i", "[[1]]", *options) == {"y": [[2]]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nobody", "-i", "[[1]]"), ["'nobody' is not found"]),
        (("broken", "-i", "[[1]]"), ["broken", "weights"]),
        (("step", "-i", "[[1]"), ["'x'", "JSON"]),
        (("step", "-i", "[[1.5]]"), ["'x'"]),
        (("step", "-i", '[["a"]]'), ["'x'"]),
        (("step", "-i", "[[null]]"), ["'x'"]),
        (("step", "-i", '{"a": 1}'), ["'x'"]),
        (("step", "-i", "[[9223372036854775808]]"), ["'x'"]),
        (("picture", "-i", "[[[300, 0, 0]]]"), ["'x'"]),
        (("step", "-i", "[[[1]]]"), ["shape"]),
        (("step", "-i", "[[1],[2],[3],[4],[5]]"), ["1 to 4"]),
        (("step", "-i", "nowhere.npy"), ["nowhere.npy"]),
        (("step", "-i", "nowhere.json"), ["nowhere.json", "No such file"]),
        (("sums", "-i", "[1, 2, 3, 4]"), ["NAME=VALUE", "a, b"]),
        (("sums", "-i", "a=[1, 2, 3, 4]"), ["Missing: b"]),
        (("step", "-i", "[[1]]", "--priority", "urgent"), ["--priority", "critical"]),
        (("step", "-i", "[[1]]", "--timeout", "0"), ["--timeout", "above 0"]),
    ],
)
def test_infer_says_in_a_line_what_is_wrong(
    node: RunningNode, run_here: RunHere, arguments: tuple[str, ...], words: list[str]
) -> None:
    text = failed(run_here(node.home, "infer", *arguments), 1)
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("name", "content"),
    [("bad.npy", b"\x93NUMPY"), ("bad.wav", b"RIFF"), ("bad.json", b"{"), ("empty.npy", b"")],
)
def test_infer_says_in_a_line_which_file_cannot_be_read(
    node: RunningNode, run_here: RunHere, name: str, content: bytes
) -> None:
    (node.home.folder / name).write_bytes(content)
    model = "sound" if name.endswith("wav") else "step"
    failed(run_here(node.home, "infer", model, "-i", name), 1)


def test_a_broken_picture_is_named_in_a_line(node: RunningNode, run_here: RunHere) -> None:
    pytest.importorskip("PIL.Image")
    (node.home.folder / "bad.png").write_bytes(b"\x89PNG")
    assert "bad.png" in failed(run_here(node.home, "infer", "picture", "-i", "bad.png"), 1)
