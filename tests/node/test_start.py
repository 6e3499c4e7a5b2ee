"""Places where a node cannot start: it says why in a line, and ends with a code of its own."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from .bodies import infer, result
from .conftest import MakeHome, StartNode
from .nodes import Home, wait_until
from .test_configuration import STEP, failed


def refusal(home: Home, *options: str) -> str:
    """Why a node cannot start; nothing of it may be left behind."""
    text = failed(home.treadle("up", str(home.config), *(options or ("--port", "0"))), 5)
    assert home.processes() == []
    return text


def test_a_port_in_use_is_named(make_home: MakeHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = refusal(make_home(STEP), "--port", str(port))
    assert f"port {port}" in text
    assert "in use" in text


def test_the_port_of_another_node_is_in_use(start_node: StartNode, make_home: MakeHome) -> None:
    node = start_node(STEP)
    assert f"port {node.port}" in refusal(make_home(STEP), "--port", str(node.port))
    assert result(infer(node, "step", 1)) == [2]


def test_a_second_node_on_the_same_socket_is_told_the_first_ones_pid(
    start_node: StartNode,
) -> None:
    node = start_node(STEP)
    process = node.home.treadle("up", str(node.home.config), "--port", "0")
    text = failed(process, 5)
    assert f"pid {node.process.pid}" in text
    assert "treadle down" in text
    assert node.status()["pid"] == node.process.pid


def test_two_nodes_live_side_by_side_on_sockets_of_their_own(start_node: StartNode) -> None:
    first, second = start_node(STEP), start_node(STEP)
    assert first.status()["pid"] != second.status()["pid"]
    assert result(infer(first, "step", 1)) + result(infer(second, "step", 2)) == [2, 3]


def test_an_address_that_is_not_this_machines_is_named(make_home: MakeHome) -> None:
    home = make_home('[http]\nhost = "192.0.2.1"\ntoken = "t"\n' + STEP)
    assert "192.0.2.1" in refusal(home)


def test_a_host_that_does_not_exist_is_named(make_home: MakeHome) -> None:
    home = make_home('[http]\nhost = "no-such-host.invalid"\ntoken = "t"\n' + STEP)
    assert "no-such-host.invalid" in refusal(home)


@pytest.mark.parametrize("variable", ["TREADLE_RUNTIME_DIR", "TREADLE_STATE_DIR"])
@pytest.mark.parametrize("place", ["/proc/treadle", "/dev/null/treadle"])
def test_a_folder_that_cannot_be_made_is_named(
    make_home: MakeHome, variable: str, place: str
) -> None:
    assert place in refusal(make_home(STEP, {variable: place}))


def test_a_log_that_cannot_be_written_is_named(make_home: MakeHome) -> None:
    home = make_home(STEP)
    (home.folder / "state" / "node.log").mkdir(parents=True)
    assert "node.log" in refusal(home)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen anywhere")
def test_a_port_that_needs_permission_is_named(make_home: MakeHome) -> None:
    assert "no permission to listen on port 80" in refusal(make_home(STEP), "--port", "80")


def test_a_socket_path_that_is_too_long_is_refused_with_what_would_help(
    make_home: MakeHome,
) -> None:
    text = refusal(make_home(STEP, {"TREADLE_SOCKET": "/tmp/" + "a" * 110}))
    assert "107 bytes" in text
    assert "TREADLE_SOCKET" in text


def test_a_socket_and_a_lock_left_by_a_killed_node_are_no_obstacle(start_node: StartNode) -> None:
    node = start_node(STEP)
    node.signal(signal.SIGKILL)
    assert node.wait_ended() == -signal.SIGKILL
    assert node.socket.exists()
    wait_until(lambda: not node.home.processes(), "the killed node's workers end")
    second = node.home.up()
    try:
        second.wait_until_started()
        assert result(infer(second, "step", 1)) == [2]
    finally:
        second.close()


def test_a_node_that_ends_takes_its_socket_away(start_node: StartNode) -> None:
    node = start_node(STEP)
    assert node.socket.is_socket()
    node.signal(signal.SIGTERM)
    assert node.wait_ended() == 0
    assert not node.socket.exists()


def test_only_the_owner_can_reach_the_socket(start_node: StartNode) -> None:
    socket_path = start_node(STEP).socket
    assert socket_path.parent.stat().st_mode & 0o777 == 0o700
    assert socket_path.stat().st_mode & 0o777 == 0o600


def test_a_node_without_models_is_ready(start_node: StartNode) -> None:
    node = start_node("")
    assert node.http.get("/v2/health/ready").status_code == 200
    assert node.http.post("/v2/repository/index").json() == []


def test_a_killed_node_leaves_no_process_behind(start_node: StartNode) -> None:
    node = start_node(
        STEP + '[[model]]\nname = "echo"\nfactory = "plain:Echo"\n'
        'parameters = { datatype = "INT64", rank = 1 }\n'
    )
    # Large JSON is read in a process of its own: that one must end, too.
    given = {"name": "x", "datatype": "INT64", "shape": [50_000], "data": [1] * 50_000}
    assert node.http.post("/v2/models/echo/infer", json={"inputs": [given]}).status_code == 200
    with node.shut("step"):
        started = {pid for model in node.status()["models"] for pid in model["pids"]}
        assert started < set(node.home.processes())
        node.signal(signal.SIGKILL)
        node.wait_ended()
        wait_until(lambda: not node.home.processes(), "every process of the node ends")
