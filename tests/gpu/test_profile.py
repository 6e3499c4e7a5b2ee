"""Shares of a real GPU's SMs, and models measured with them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.conftest import PROGRAMS, Floor
from tests.gpu.test_serving import NODE_NEEDS

pytestmark = pytest.mark.gpu

MODEL = """
[[model]]
name = "m"
factory = "served:doubling"
parameters = { size = 1024 }
inputs = [{ name = "x", datatype = "FP32", shape = [-1, 64] }]
outputs = [{ name = "y", datatype = "FP32", shape = [-1, 64] }]
max_batch = 32
device = "cuda"
"""


def test_streams_have_sms_of_their_own(floor: Floor) -> None:
    if not importlib.util.find_spec("cuda"):
        pytest.skip("the package cuda-bindings is not installed")
    program = floor.run("green")
    sms, first, second, right = map(int, program.expect("counts"))
    assert right
    assert first == second
    assert 0 < first <= sms / 2
    places = program.expect("places")
    if places != ["unknown"]:
        assert [int(place) for place in places] == [first, second, 0]
    program.end()


def measured(floor: Floor, toml: str) -> dict[str, Any]:
    if missing := [name for name in NODE_NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"a node needs {', '.join(missing)}")
    folder = floor.folder / "node"
    folder.mkdir()
    (folder / "treadle.toml").write_text(toml)
    (folder / "served.py").write_text((PROGRAMS / "served.py").read_text())
    file = folder / "profile.json"
    command = f"-m treadle profile m --config {folder}/treadle.toml --seconds 0.1 --output {file}"
    program = floor.start(
        [sys.executable, *command.split(), "--rows", "1,32"],
        TREADLE_RUNTIME_DIR=f"{folder}/run",
        TREADLE_STATE_DIR=f"{folder}/state",
    )
    program.expect("written")
    program.end()
    content: dict[str, Any] = json.loads(Path(file).read_bytes())
    return content


def test_a_model_is_measured_by_the_devices_clock_and_by_share(floor: Floor) -> None:
    profile = measured(floor, MODEL)
    found = [(point["sm_share"], point["rows"]) for point in profile["points"]]
    shares = (1.0, 0.5, 0.25) if importlib.util.find_spec("cuda") else (1.0,)
    assert found == [(share, rows) for share in shares for rows in (1, 32)], profile["left_out"]
    assert {point["clock"] for point in profile["points"]} == {"device"}
    assert profile["driver"]
    if shares == (1.0,):
        assert all("cuda-bindings" in reason for reason in profile["left_out"])


def test_a_model_with_graphs_is_measured_with_all_sms(floor: Floor) -> None:
    profile = measured(floor, MODEL + "cuda_graph = true\n")
    assert [point["sm_share"] for point in profile["points"]] == [1.0, 1.0]
