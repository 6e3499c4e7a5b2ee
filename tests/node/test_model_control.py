"""Models come and go while others serve."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import orjson
import pytest

from .bodies import body, error, infer, result, tensor
from .clients import Flood
from .conftest import StartNode
from .nodes import RunningNode, is_alive, wait_until
from .wire import head, wire

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
share = 0.1

[[model]]
name = "other"
factory = "steps:Step"
share = 0.1
"""


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> RunningNode:
    """The node, with every model loaded that is from the start."""
    shared.forget_what_ran()
    for model in ("step", "other"):
        if shared.model(model)["state"] != "READY":
            assert load(shared, model).status_code == 200
    return shared


def load(node: RunningNode, model: str) -> httpx.Response:
    return node.local.post(f"/v2/repository/models/{model}/load")


def unload(node: RunningNode, model: str) -> httpx.Response:
    return node.local.post(f"/v2/repository/models/{model}/unload")


def pids(node: RunningNode, model: str) -> list[int]:
    found: list[int] = node.model(model)["pids"]
    return found


def wait_for_state(node: RunningNode, model: str, state: str) -> None:
    wait_until(lambda: node.model(model)["state"] == state, f"{model} is {state}")


def test_unloading_serves_what_was_accepted_then_ends_the_process(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    (pid,) = pids(node, "step")
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        waiting = pool.submit(infer, node, "step", 2)
        node.wait_for_waiting("step", 1)
        unloading = pool.submit(unload, node, "step")
        wait_for_state(node, "step", "UNLOADING")
        assert "unloading" in error(infer(node, "step", 3), 503)
        error(node.http.get("/v2/models/step/ready"), 400)
        assert result(infer(node, "other", 4)) == [5]
        assert not unloading.done()
    assert unloading.result().status_code == 200
    assert result(running.result()) + result(waiting.result()) == [2, 3]
    assert not is_alive(pid)
    assert pids(node, "step") == []
    assert node.model("step")["state"] == "UNAVAILABLE"
    assert "unloaded" in error(infer(node, "step", 5), 503)
    assert node.http.get("/v2/health/ready").status_code == 200


def test_loading_brings_a_model_back(node: RunningNode) -> None:
    before = pids(node, "step")
    assert unload(node, "step").status_code == 200
    assert load(node, "step").status_code == 200
    assert result(infer(node, "step", 1)) == [2]
    assert pids(node, "step") != before
    assert node.http.get("/v2/models/step/ready").status_code == 200


def test_unloading_twice_is_no_error(node: RunningNode) -> None:
    assert unload(node, "step").status_code == 200
    assert unload(node, "step").status_code == 200


def test_an_unknown_model_is_neither_loaded_nor_unloaded(node: RunningNode) -> None:
    assert "'nobody'" in error(load(node, "nobody"), 404)
    assert "'nobody'" in error(unload(node, "nobody"), 404)


def test_a_request_whose_model_is_unloaded_while_its_body_comes_is_refused(
    node: RunningNode,
) -> None:
    content = orjson.dumps(body(1))
    with wire(node) as client:
        client.send(head("/v2/models/step/infer", {"Content-Length": len(content)}), content[:-1])
        assert result(infer(node, "step", 2)) == [3]  # so the node has seen those headers
        assert unload(node, "step").status_code == 200
        client.send(content[-1:])
        status, _, answer = client.answer()
    assert status == 503
    assert "unloaded" in answer["error"]
    assert node.status()["open_requests"] == 0


def test_a_model_that_takes_long_to_load_never_stalls_another(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    unload(node, "step")
    with node.shut("load-step"):
        loading = pool.submit(load, node, "step")
        wait_for_state(node, "step", "LOADING")
        for x in range(20):
            assert result(infer(node, "other", x)) == [x + 1]
        assert "loading" in error(infer(node, "step", 1), 503)
        assert load(node, "other").status_code == 200
        assert not loading.done()
    assert loading.result().status_code == 200
    assert result(infer(node, "step", 1)) == [2]


def test_a_model_serves_while_it_is_loaded_anew(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    before, known = pids(node, "step"), set(node.home.processes())
    with node.shut("load-step"):
        loading = pool.submit(load, node, "step")
        wait_until(lambda: not known.issuperset(node.home.processes()), "the new worker is there")
        assert result(infer(node, "step", 1)) == [2]
        assert pids(node, "step") == before
        assert not loading.done()
    assert loading.result().status_code == 200
    assert pids(node, "step") != before
    assert result(infer(node, "step", 2)) == [3]


def test_a_batch_that_runs_while_its_model_is_loaded_anew_is_finished(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    (before,) = pids(node, "step")
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        assert load(node, "step").status_code == 200
        assert is_alive(before)
        assert before not in pids(node, "step")
    assert result(running.result()) == [2]
    wait_until(lambda: not is_alive(before), "the old worker ends after its batch")


def test_loading_anew_under_load_loses_no_request(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    flood = Flood(node, pool, "step")
    try:
        for _ in range(3):
            before = pids(node, "step")
            assert load(node, "step").status_code == 200
            assert pids(node, "step") != before
    finally:
        flood.stop()


def test_a_model_that_cannot_be_loaded_anew_serves_on_as_it_was(node: RunningNode) -> None:
    before = pids(node, "step")
    module = node.home.folder / "steps.py"
    good = module.read_text()
    module.write_text("raise RuntimeError('half written')")
    try:
        assert "half written" in error(load(node, "step"), 400)
    finally:
        module.write_text(good)
    assert pids(node, "step") == before
    assert result(infer(node, "step", 1)) == [2]
    assert node.http.get("/v2/health/ready").status_code == 200
    assert load(node, "step").status_code == 200


def test_loads_and_unloads_of_one_model_at_once_end_in_order(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    calls = [pool.submit(call, node, "step") for call in [load, unload] * 3]
    assert all(call.result().status_code == 200 for call in calls)
    assert load(node, "step").status_code == 200
    assert result(infer(node, "step", 1)) == [2]
    assert len(pids(node, "step")) == 1


def test_a_request_that_waits_while_its_model_changes_is_answered_one_way_or_the_other(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node('[[model]]\nname = "step"\nfactory = "steps:Step"\n')
    module = node.home.folder / "steps.py"
    one_input = module.read_text()
    two_inputs = one_input.replace(
        'inputs = (TensorSpec("x", "INT64", (-1, 1)),)',
        'inputs = (TensorSpec("z", "INT64", (-1, 1)), TensorSpec("x", "INT64", (-1, 1)))',
    )
    assert two_inputs != one_input
    with node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        waiting = pool.submit(infer, node, "step", 2)
        node.wait_for_waiting("step", 1)
        module.write_text(two_inputs)
        assert load(node, "step").status_code == 200
    assert result(running.result()) == [2]
    error(waiting.result(), 503)
    content = {"inputs": [tensor([3], name="z"), tensor([4])]}
    assert result(node.http.post("/v2/models/step/infer", json=content)) == [5]
