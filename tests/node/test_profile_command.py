"""``treadle profile``, and the node that goes by what it has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .bodies import infer, result
from .conftest import MakeHome, RunHere, StartNode
from .nodes import Home

STEP = '[[model]]\nname = "step"\nfactory = "steps:Step"\nmax_batch = 6\n'


def measured(home: Home, run_here: RunHere, *options: str) -> dict[str, Any]:
    done = run_here(
        home, "profile", "step", "--config", str(home.config), "--seconds", "0", *options
    )
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_each_size_is_measured_and_kept_in_the_state_folder(
    make_home: MakeHome, run_here: RunHere
) -> None:
    home = make_home(STEP)
    profile = measured(home, run_here, "--json")
    assert [point["rows"] for point in profile["points"]] == [1, 2, 4, 6]
    for point in profile["points"]:
        assert point["runs"] >= 20
        assert point["p95_seconds"] >= point["median_seconds"] > 0
        assert (point["sm_share"], point["clock"]) == (1.0, "wall")
    assert profile["subject"]["source"] == "steps:Step"
    assert profile["inputs"] == {"x": [1, 1]}
    file = Path(profile.pop("file"))
    assert file.parent == home.folder / "state" / "profiles"
    assert json.loads(file.read_bytes()) == profile
    assert (home.folder / "ran").read_text().splitlines().count("step: 0 0 0 0 0 0") >= 20
    assert home.processes() == []


def test_what_is_asked_for_is_measured_and_the_rest_has_a_reason(
    make_home: MakeHome, run_here: RunHere
) -> None:
    home = make_home(STEP + "p99_seconds = 0.00000001\n")
    options = ("--rows", "3,1", "--sm-share", "0.5,1", "--output", "own.json", "--seconds", "0")
    done = run_here(home, "profile", "step", *options)  # the configuration lies here
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["ROWS", "1", "3"]
    assert "left out: sm_share 0.5: it runs on the CPU" in done.stdout
    assert "can never be met" in done.stdout
    assert (home.folder / "own.json").exists()


SMALL = """
import numpy as np
from treadle import TensorSpec

class Small:
    inputs = outputs = [TensorSpec("x", "FP32", (-1, 2))]

    def __call__(self, inputs):
        if len(inputs["x"]) > 2:
            raise ValueError("it is too much")
        return {"x": inputs["x"] + np.float32(1)}
"""


def test_sizes_that_fail_are_left_out_with_their_reason(
    make_home: MakeHome, run_here: RunHere
) -> None:
    home = make_home(STEP.replace("steps:Step", "small:Small"))
    (home.folder / "small.py").write_text(SMALL)
    profile = measured(home, run_here, "--json")
    assert [point["rows"] for point in profile["points"]] == [1, 2]
    assert profile["left_out"] == ["4 rows and more: ValueError: it is too much"]
    done = run_here(home, "profile", "step", "--rows", "4")
    assert (done.returncode, "nothing of 'step' could be measured" in done.stderr) == (1, True)


FAULTY = '[[model]]\nname = "m"\nfactory = "{}"\nmax_batch = 2\n'
REFUSED = [
    (STEP, ("nope",), "no model 'nope'; there: step"),
    (STEP, ("step", "--rows", "1,7"), "1 to max_batch, which is 6"),
    (STEP, ("step", "--rows", "x"), "numbers with commas between"),
    (STEP, ("step", "--sm-share", "2"), "above 0, to 1"),
    (FAULTY.format("nowhere:load"), ("m",), "nowhere"),
    (
        FAULTY.format("steps:Step") + 'device = "cuda"\n',
        ("m",),
        "no GPU cuda:0",
    ),
]


@pytest.mark.parametrize(("toml", "options", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_measured_says_why(
    make_home: MakeHome, run_here: RunHere, toml: str, options: tuple[str, ...], said: str
) -> None:
    home = make_home(toml)
    done = run_here(home, "profile", *options)
    assert done.returncode == 1
    assert said in done.stderr
    assert home.processes() == []


def test_a_node_goes_by_it_and_says_what_can_never_be(
    make_home: MakeHome, run_here: RunHere, start_node: StartNode
) -> None:
    profile = measured(make_home(STEP), run_here, "--json")
    del profile["file"]
    for point in profile["points"]:
        point["median_seconds"] = 5.0

    def put(home: Home) -> None:
        (home.folder / "slow.json").write_text(json.dumps(profile))
        (home.folder / "old.json").write_text(json.dumps({**profile, "format": 0}))

    slow = STEP + 'p99_seconds = 0.5\nprofile = "slow.json"\n'
    old = STEP.replace('"step"', '"old"') + 'profile = "old.json"\n'
    node = start_node(slow + old, prepare=put)
    (note,) = node.model("step")["notes"]
    assert "p99_seconds = 0.5 can never be met" in note
    assert node.model("step")["profile"] == str(node.home.folder / "slow.json")
    assert "not used" in node.model("old")["notes"][0]
    assert note in node.log.read_text()
    assert note in " ".join(node.home.treadle("models").stdout.split())
    assert result(infer(node, "step", 1)) == [2]  # it is served all the same


def test_a_node_finds_the_profile_in_its_state_folder(
    make_home: MakeHome, run_here: RunHere, start_node: StartNode
) -> None:
    home = make_home(STEP)
    file = Path(measured(home, run_here, "--json")["file"])

    def put(other: Home) -> None:
        place = other.folder / "state" / "profiles" / file.name
        place.parent.mkdir(parents=True)
        place.write_bytes(file.read_bytes())

    found = start_node(STEP, prepare=put).model("step")
    assert Path(found["profile"]).name == file.name
    assert found["notes"] == []
