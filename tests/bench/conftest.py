"""A configuration of two small NumPy models."""

from __future__ import annotations

from pathlib import Path

import pytest

MODELS = """\
import os
import numpy as np

class Square:
    def __call__(self, inputs):
        return {"y": inputs["x"] ** 2}

class Broken:
    def __call__(self, inputs):
        raise ValueError("out of order")

class Signalling(Square):
    \"\"\"Says into a named pipe which process its node is, once it is loaded.\"\"\"

    def __init__(self, context):
        with open(context.parameters["pipe"], "w") as pipe:
            print(os.getppid(), file=pipe)
"""

TABLE = """\
[[model]]
name = "{name}"
factory = "models:{kind}"
inputs = [{{ name = "x", datatype = "FP32", shape = [-1, 4] }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [-1, 4] }}]
max_batch = 4
{more}
"""


class Configuration:
    """Writes ``treadle.toml``, a table at a time, beside the models' code."""

    def __init__(self, folder: Path) -> None:
        (folder / "models.py").write_text(MODELS)
        self.file = folder / "treadle.toml"

    def add(self, name: str, kind: str = "Square", more: str = "") -> None:
        with self.file.open("a") as file:
            file.write(TABLE.format(name=name, kind=kind, more=more))


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """One without a model."""
    return Configuration(tmp_path)


@pytest.fixture
def two_models(configuration: Configuration) -> Path:
    """An urgent model with an objective, and a patient one with none."""
    configuration.add("urgent", more='priority = "critical"\np99_seconds = 30.0')
    configuration.add("patient", more='priority = "background"')
    return configuration.file
