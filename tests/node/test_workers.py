"""Models and the processes that host them: shared ones, several, and with variables set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .bodies import error, infer, result
from .clients import Flood
from .conftest import StartNode
from .nodes import RunningNode, is_alive

CONFIGURATION = """
[[model]]
name = "left"
factory = "steps:Step"
share = 0.1
worker = "both"

[[model]]
name = "right"
factory = "steps:Step"
share = 0.1
worker = "both"

[[model]]
name = "twins"
factory = "steps:Step"
share = 0.1
replicas = 2

[[model]]
name = "variables"
factory = "plain:Variables"
share = 0.1
env = { LOOM = "oak" }
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


def pids(node: RunningNode, model: str) -> list[int]:
    found: list[int] = node.model(model)["pids"]
    return found


def test_two_models_share_a_worker(node: RunningNode) -> None:
    assert pids(node, "left") == pids(node, "right") != []


def test_unloading_one_of_two_that_share_a_worker_keeps_the_other_serving(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    (before,) = pids(node, "left")
    flood = Flood(node, pool, "right")
    try:
        assert node.local.post("/v2/repository/models/left/unload").status_code == 200
        assert "unloaded" in error(infer(node, "left", 1), 503)
        assert not is_alive(before)
        assert node.local.post("/v2/repository/models/left/load").status_code == 200
        assert result(infer(node, "left", 1)) == [2]
    finally:
        flood.stop()
    assert pids(node, "left") == pids(node, "right") != [before]


def test_replicas_run_at_the_same_time(node: RunningNode, pool: ThreadPoolExecutor) -> None:
    assert len(pids(node, "twins")) == 2
    with node.shut("twins"):
        both = [pool.submit(infer, node, "twins", x) for x in (1, 2)]
        node.wait_for_run("twins: 1")
        node.wait_for_run("twins: 2")
    assert sorted(x for answer in both for x in result(answer.result())) == [2, 3]


def test_a_model_has_the_environment_of_its_table(node: RunningNode) -> None:
    given = {"name": "name", "datatype": "BYTES", "shape": [1], "data": ["LOOM"]}
    answer = node.http.post("/v2/models/variables/infer", json={"inputs": [given]})
    assert result(answer) == ["oak"]
