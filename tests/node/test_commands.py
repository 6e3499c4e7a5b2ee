"""The command line beside a running node, and without one."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import treadle

from .bodies import infer
from .conftest import MakeHome, StartNode
from .nodes import RunningNode
from .test_configuration import STEP, failed

CONFIGURATION = """
[[model]]
name = "step"
factory = "steps:Step"
p99_seconds = 0.25

[[model]]
name = "broken"
factory = "unloadable:raises"
"""


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


def run(node: RunningNode, *arguments: str) -> str:
    process = node.home.treadle(*arguments)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_status_tells_where_the_node_is_and_how_it_does(node: RunningNode) -> None:
    text = run(node, "status")
    for word in (treadle.__version__, str(node.process.pid), f":{node.port}/v2", "priority"):
        assert word in text
    assert str(node.home.config) in text
    assert "not ready: broken: " in text


def test_status_as_json_is_what_the_node_says(node: RunningNode) -> None:
    status = json.loads(run(node, "status", "--json"))
    assert status["pid"] == node.process.pid
    assert status["http"] == {"host": "127.0.0.1", "port": node.port}
    assert status["ready"] is False
    assert {m["name"]: m["state"] for m in status["models"]}["step"] == "READY"


def test_models_are_listed_with_state_and_reason(node: RunningNode) -> None:
    text = run(node, "models")
    assert "250 ms" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "ready" in lines["step"]
    assert "unavailable" in lines["broken"]
    assert "weights" in text


def test_models_as_json_are_a_list(node: RunningNode) -> None:
    names = [model["name"] for model in json.loads(run(node, "models", "--json"))]
    assert names == ["step", "broken"]


@pytest.mark.parametrize(
    "command", [["status"], ["models"], ["models", "--json"], ["infer", "step"], ["down"]]
)
def test_without_a_node_a_command_says_so_and_ends_with_four(
    make_home: MakeHome, command: list[str]
) -> None:
    text = failed(make_home().treadle(*command), 4)
    assert "no node answers" in text
    assert "treadle up" in text


def test_a_socket_that_a_killed_node_left_is_no_node(make_home: MakeHome) -> None:
    home = make_home()
    (home.folder / "run").mkdir()
    (home.folder / "run" / "node.sock").touch()
    failed(home.treadle("status"), 4)


def down(node: RunningNode, *options: str) -> str:
    """Run ``treadle down`` and look after the node meanwhile, as its parent must."""
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(node.wait_ended)
        text = run(node, "down", *options)
        ending.result()
    return text


def test_down_ends_the_node_and_waits_for_it(start_node: StartNode) -> None:
    node = start_node(STEP)
    assert f"node {node.process.pid} has ended" in down(node)
    assert node.exit_code == 0
    assert node.home.processes() == []


def test_down_now_does_not_wait_for_what_was_accepted(start_node: StartNode) -> None:
    node = start_node(STEP)
    with ThreadPoolExecutor(1) as pool, node.shut("step"):
        lost = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        down(node, "--now")
        assert lost.exception() or lost.result().status_code == 500
    assert node.exit_code == 143


def test_down_gives_up_waiting_with_a_hint(start_node: StartNode) -> None:
    node = start_node(STEP)
    with ThreadPoolExecutor(1) as pool, node.shut("step"):
        running = pool.submit(infer, node, "step", 1)
        node.wait_for_run("step: 1")
        text = failed(node.home.treadle("down", "--timeout", "0.2"), 1)
        assert "down --now" in text
        assert not running.done()
    assert running.result().status_code == 200
    assert node.wait_ended() == 0


def test_version_is_the_packages(make_home: MakeHome) -> None:
    process = make_home().treadle("version")
    assert process.returncode == 0
    assert process.stdout == f"treadle {treadle.__version__}\n"


def test_the_installed_command_is_the_same_program(make_home: MakeHome) -> None:
    command = Path(sysconfig.get_path("scripts")) / "treadle"
    process = subprocess.run([command, "version"], capture_output=True, text=True, check=True)
    assert process.stdout == make_home().treadle("version").stdout


def test_help_names_every_command(make_home: MakeHome) -> None:
    process = make_home().treadle("--help")
    assert process.returncode == 0
    for command in ("up", "check", "status", "models", "infer", "down", "version", "bench"):
        assert f"\n  {command} " in process.stdout


@pytest.mark.parametrize("arguments", [["weave"], ["up"], ["status", "--weave"]])
def test_a_command_that_is_none_is_a_usage_error(make_home: MakeHome, arguments: list[str]) -> None:
    process = make_home().treadle(*arguments)
    assert process.returncode == 2
    assert "Traceback" not in process.stderr
