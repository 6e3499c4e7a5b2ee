from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from make_inputs import write_inputs
from PIL import Image


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quickstart") / "inputs"
    write_inputs(folder)
    return folder


def test_the_committed_inputs_are_what_the_script_writes(inputs: Path, regenerated: Path) -> None:
    committed = sorted(path.name for path in inputs.iterdir())
    assert committed == sorted(path.name for path in regenerated.iterdir())
    for name in committed:
        if name.endswith(".png"):
            # Another version of the font renderer may shade the edge of a letter differently.
            old, new = (
                np.asarray(Image.open(folder / name), dtype=np.int16)
                for folder in (inputs, regenerated)
            )
            assert old.shape == new.shape
            assert np.abs(old - new).mean() < 0.5
        else:
            assert (inputs / name).read_bytes() == (regenerated / name).read_bytes(), name


def test_the_inputs_stay_small(inputs: Path) -> None:
    assert sum(path.stat().st_size for path in inputs.iterdir()) < 300_000


def test_every_input_is_the_example_of_one_model(inputs: Path) -> None:
    config = tomllib.loads((inputs.parent / "treadle.toml").read_text(encoding="utf-8"))
    examples = [example for model in config["model"] for example in model["examples"]]
    assert sorted(examples) == sorted(f"inputs/{path.name}" for path in inputs.iterdir())
