from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from file_type import FileType
from samples.sources import SOURCES


def ask(model: FileType, contents: Sequence[bytes]) -> tuple[list[bytes], list[float]]:
    outputs = model({"content": np.array(contents, dtype=object)})
    return outputs["label"].tolist(), outputs["score"].tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_every_example_gets_its_label(file_type: FileType, inputs: Path, name: str) -> None:
    labels, scores = ask(file_type, [(inputs / name).read_bytes()])
    assert labels == [SOURCES[name].label.encode()]
    assert 0.5 < scores[0] <= 1


@pytest.mark.parametrize(
    ("content", "label"),
    [
        (b"", b"empty"),
        (b"a", b"txt"),
        (b"1234567", b"txt"),
        (b"\xff", b"unknown"),
        ("é".encode()[:1], b"unknown"),
        (b"\n" * 5_000, b"txt"),
        (b"\n" * 4_000 + b"\xff", b"unknown"),
        (b" " * 4_090 + b"print()" * 40, b"txt"),
    ],
)
def test_a_file_with_too_few_bytes_is_labelled_without_the_network(
    file_type: FileType, content: bytes, label: bytes
) -> None:
    assert ask(file_type, [content]) == ([label], [1.0])


def test_a_batch_gets_the_answers_of_its_items(file_type: FileType, inputs: Path) -> None:
    contents = [(inputs / name).read_bytes() for name in SOURCES]
    contents[1:1] = [b"", b"tiny"]
    labels, scores = ask(file_type, contents)
    singles = [ask(file_type, [content]) for content in contents]
    assert labels == [label for (label,), _ in singles]
    # The network subtracts large numbers from each other, and what is left of the rounding
    # differs with the size of the batch.
    assert scores == pytest.approx([score for _, (score,) in singles], abs=0.02)


def test_a_batch_may_be_all_short_files(file_type: FileType) -> None:
    assert ask(file_type, [b"", b"hi"]) == ([b"empty", b"txt"], [1.0, 1.0])


def test_the_answers_are_those_of_the_magika_package(file_type: FileType, inputs: Path) -> None:
    magika = pytest.importorskip("magika").Magika()
    draw = random.Random(7)
    contents = [path.read_bytes() for path in sorted(inputs.iterdir())]
    contents += [content[: draw.randrange(600)] for content in contents]
    contents += [b"\n " * draw.randrange(3_000) + content for content in contents]
    contents += [draw.randbytes(draw.randrange(40)) for _ in range(20)]
    for content in contents:
        expected = magika.identify_bytes(content)
        (label,), (score,) = ask(file_type, [content])
        assert label.decode() == expected.output.label
        assert score == pytest.approx(expected.score, abs=1e-3)
