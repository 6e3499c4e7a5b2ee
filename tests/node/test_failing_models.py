"""Models that fail while they serve: their callers hear why, everybody else is served."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode, is_alive, wait_until

RAISING = {
    "raises": "RuntimeError: 13 is unlucky",
    "raises at length": "13 is unlucky",
    "raises what is no text": "13 is unlucky",
    "prints at length": "RuntimeError: 13 is unlucky",
    "shape": "shape [1]",
    "datatype": "FP32",
    "missing": "'y'",
    "rows": "2 rows for a batch of 1",
    "nothing": "NoneType",
    "list": "'y'",
}
"""Faults after which the worker lives on, and a word of what the caller is told."""

DEADLY = {
    "hangs": "ran longer than 1 s",
    "aborts": "SIGABRT",
    "exits": "exit code 1",
}
"""Faults that end the worker."""

CONFIGURATION = """
[[model]]
name = "healthy"
factory = "steps:Step"
share = 0.2

[[model]]
name = "step"
factory = "steps:Step"
max_batch = 4
max_delay_seconds = 0.2
share = 0.2
""" + "".join(
    f"""
[[model]]
name = "{fault.replace(" ", "-")}"
factory = "faulty:Faulty"
parameters = {{ fault = "{fault}" }}
max_batch = 6
max_delay_seconds = 0.2
run_limit_seconds = {1 if fault == "hangs" else 60}
share = 0.2
worker = "{"raising" if fault in RAISING and "text" not in fault else fault.replace(" ", "-")}"
"""
    for fault in (*RAISING, *DEADLY)
)


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


def pids(node: RunningNode, model: str) -> list[int]:
    found: list[int] = node.model(model)["pids"]
    return found


@pytest.mark.parametrize("fault", RAISING)
def test_a_failed_batch_is_an_error_that_says_why(node: RunningNode, fault: str) -> None:
    model = fault.replace(" ", "-")
    before = pids(node, model)
    text = error(infer(node, model, 13), 500)
    assert f"model '{model}' failed" in text
    assert RAISING[fault] in text
    assert len(text) < 10_000
    assert result(infer(node, model, 1, 2)) == [2, 4]
    assert pids(node, model) == before


@pytest.mark.parametrize("fault", DEADLY)
def test_a_worker_that_is_lost_is_replaced(node: RunningNode, fault: str) -> None:
    (before,) = pids(node, fault)
    healthy = pids(node, "healthy")
    text = error(infer(node, fault, 13), 500)
    assert f"model '{fault}' failed" in text
    assert DEADLY[fault] in text
    assert result(infer(node, fault, 1, 2)) == [2, 4]
    assert pids(node, fault) != [before]
    assert not is_alive(before)
    assert node.model(fault)["restarts"] >= 1
    assert node.http.get(f"/v2/models/{fault}/ready").status_code == 200
    assert pids(node, "healthy") == healthy


@pytest.mark.parametrize("fault", RAISING)
def test_one_bad_item_does_not_spoil_the_batch_for_the_others(
    node: RunningNode, pool: ThreadPoolExecutor, fault: str
) -> None:
    model = fault.replace(" ", "-")
    answers = list(pool.map(lambda x: infer(node, model, x), [1, 2, 13, 4, 5, 6]))
    error(answers.pop(2), 500)
    assert [result(answer) for answer in answers] == [[2], [4], [8], [10], [12]]


def test_requests_that_come_together_share_a_batch(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    node.forget_what_ran()
    answers = list(pool.map(lambda x: infer(node, "step", x), [1, 2, 3, 4]))
    assert [result(answer) for answer in answers] == [[2], [3], [4], [5]]
    (batch,) = node.ran()
    assert sorted(batch.split()) == ["1", "2", "3", "4", "step:"]


def test_a_worker_killed_in_the_middle_of_a_batch_fails_it_and_no_more(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    (before,) = pids(node, "healthy")
    node.forget_what_ran()
    with node.shut("healthy"):
        lost = pool.submit(infer, node, "healthy", 1)
        node.wait_for_run("healthy: 1")
        waiting = pool.submit(infer, node, "healthy", 2)
        node.wait_for_waiting("healthy", 1)
        os.kill(before, signal.SIGKILL)
        text = error(lost.result(), 500)
    assert "killed by SIGKILL" in text
    assert result(waiting.result()) == [3]
    (after,) = pids(node, "healthy")
    assert after != before
    assert not is_alive(before)
    assert node.model("healthy")["restarts"] == 1


def test_an_idle_worker_that_is_killed_is_missed_by_nobody(node: RunningNode) -> None:
    (before,) = pids(node, "step")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: pids(node, "step") not in ([], [before]), "there is a new worker")
    assert result(infer(node, "step", 1)) == [2]


def test_a_stopped_worker_is_replaced_once_its_batch_is_late(node: RunningNode) -> None:
    (before,) = pids(node, "hangs")
    os.kill(before, signal.SIGSTOP)
    assert result(infer(node, "hangs", 1)) == [2], "it had not begun with the batch"
    assert pids(node, "hangs") != [before]


def test_failures_are_counted(node: RunningNode) -> None:
    failed = node.model("raises")["failed"]
    error(infer(node, "raises", 13), 500)
    assert node.model("raises")["failed"] == failed + 1
    statistics = node.http.get("/v2/models/raises/stats").json()["model_stats"][0]
    assert statistics["inference_stats"]["fail"]["count"] == failed + 1


def test_what_a_model_raises_is_in_the_log_with_its_place(node: RunningNode) -> None:
    error(infer(node, "raises", 13), 500)
    wait_until(lambda: 'faulty.py", line' in node.log.read_text(), "the log shows the traceback")
