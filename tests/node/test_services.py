"""Services: kept running, looked after, taken up again."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

import pytest

from treadle.cli.exits import Exit

from .conftest import MakeHome, StartNode
from .nodes import Home, RunningNode, wait_until


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def table(name: str, command: str, **keys: object) -> str:
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in keys.items()]
    return "\n".join(["[[service]]", f'name = "{name}"', f"command = {command}", *lines, ""])


def web(port: int, **keys: object) -> str:
    """A server whose health a file tells, and who is asked often."""
    command = f'["{sys.executable}", "wellness.py", "{port}"]'
    return table("web", command, port=port, health="/health", **keys)


def service(node: RunningNode, name: str = "web") -> dict[str, Any]:
    services = node.status()["jobs"]["services"]
    found: dict[str, Any] = next((s for s in services if s["name"] == name), {})
    return found


def is_(node: RunningNode, health: str, name: str = "web") -> None:
    wait_until(lambda: service(node, name).get("health") == health, f"{name} is {health}")


def says(home: Home, health: str) -> None:
    (home.folder / "health").write_text(health)


def test_a_service_is_started_and_found_healthy(start_node: StartNode) -> None:
    node = start_node(web(free_port()), prepare=lambda home: says(home, "well"))
    is_(node, "healthy")
    told = service(node)
    assert (told["restarts"], told["reason"]) == (0, "")
    shown = node.home.treadle("status").stdout
    assert "web" in shown
    assert "healthy" in shown


def test_a_service_outlives_the_node_and_is_taken_up_again(start_node: StartNode) -> None:
    node = start_node(web(free_port()), prepare=lambda home: says(home, "well"))
    is_(node, "healthy")
    before = service(node)["job"]
    node.signal(signal.SIGKILL)
    node.wait_ended()
    again = node.home.up()
    try:
        again.wait_until_started()
        is_(again, "healthy")
        assert service(again)["job"] == before
        assert service(again)["restarts"] == 0
    finally:
        again.close()


def test_one_that_never_gets_well_is_ended_and_started_again(start_node: StartNode) -> None:
    toml = web(free_port(), start_seconds=0.2, grace_seconds=1.0)
    node = start_node(toml, prepare=lambda home: says(home, "ill"))
    wait_until(lambda: service(node).get("restarts", 0) >= 1, "another life")
    log = (node.home.folder / "state" / "node.log").read_text()
    assert "not healthy for 0.2 s" in log
    assert "answers 503" in log
    says(node.home, "well")
    is_(node, "healthy")


def test_one_that_falls_ill_is_ended_and_started_again(start_node: StartNode) -> None:
    toml = web(free_port(), unhealthy_seconds=0.1, grace_seconds=1.0)
    node = start_node(toml, prepare=lambda home: says(home, "well"))
    is_(node, "healthy")
    says(node.home, "ill")
    wait_until(lambda: service(node)["restarts"] >= 1, "another life")
    says(node.home, "well")
    is_(node, "healthy")


@pytest.mark.parametrize(
    ("policy", "code", "health"),
    [
        ("never", 1, "ended"),
        ("never", 0, "ended"),
        ("on-failure", 0, "ended"),
        ("on-failure", 1, "waiting"),
        ("always", 0, "waiting"),
    ],
)
def test_whether_one_that_ends_comes_back(
    start_node: StartNode, policy: str, code: int, health: str
) -> None:
    node = start_node(table("brief", f'["sh", "-c", "exit {code}"]', restart=policy))
    wait_until(lambda: "job 1" in service(node, "brief").get("reason", ""), "it ended")
    is_(node, health, "brief")
    if health == "waiting":
        wait_until(lambda: service(node, "brief")["restarts"] >= 2, "more lives")
    else:
        assert service(node, "brief")["restarts"] == 0


def test_one_that_somebody_cancels_stays_ended(start_node: StartNode) -> None:
    node = start_node(web(free_port()), prepare=lambda home: says(home, "well"))
    is_(node, "healthy")
    number = str(service(node)["job"])
    assert node.home.treadle("cancel", number).returncode == Exit.OK
    is_(node, "ended")
    assert "cancelled by" in service(node)["reason"]


def test_a_changed_service_is_replaced_and_a_removed_one_ended(start_node: StartNode) -> None:
    forever = '["sleep", "1000"]'
    node = start_node(table("kept", forever) + table("changed", forever) + table("gone", forever))
    for name in ("kept", "changed", "gone"):
        is_(node, "healthy", name)
    before = {name: service(node, name)["job"] for name in ("kept", "changed", "gone")}
    node.signal(signal.SIGTERM)
    assert node.wait_ended() == 0
    node.home.config.write_text(
        table("kept", forever) + table("changed", forever, env={"A": "1"}).replace(":", " =")
    )
    again = node.home.up()
    try:
        again.wait_until_started()
        is_(again, "healthy", "kept")
        is_(again, "healthy", "changed")
        assert service(again, "kept")["job"] == before["kept"]
        assert service(again, "changed")["job"] != before["changed"]
        for name in ("changed", "gone"):
            ended = again.local.get(f"/treadle/v1/jobs/{before[name]}?wait=20").json()
            assert ended["state"] == "cancelled"
    finally:
        again.close()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (table("a", '["x"]') * 2, "service[1] (a): name: 'a' is already taken"),
        (table("a", "[]"), "service[0].command: Expected `array` of length >= 1"),
        (table("a", '["x"]', health="/h"), "health: a path needs a port"),
        (table("a", '["x"]', health="h"), "health: 'h'; allowed:"),
        (table("a", '["x"]', health="ftp://h"), "health: 'ftp://h'; allowed:"),
        (
            table("a", '["x"]', p99_seconds=1.0, latency_from="x"),
            "latency_from: 'x' names no metric",
        ),
        (
            table("a", '["x"]', latency_from="http://h/m m_seconds"),
            "latency_from: needs p99_seconds",
        ),
        (table("a", '["x"]', max_kernel_seconds=0.01), "Expected `float` >= 0.1"),
        (table("a", '["x"]', on_long_kernel="kill"), "allowed: report, pause, stop"),
        (table("a", '["x"]', on_long_kernel="stop"), "on_long_kernel: needs max_kernel_seconds"),
        (table("a", '["x"]', max_kernel_seconds=1.0, gpus=0), "there are no kernels to watch"),
        (table("a", '["x"]', memory="much"), "memory: 'much' is no amount of memory"),
        (table("a", '["x"]', restart="maybe"), "allowed: always, on-failure, never"),
        (table("a", '["x"]', gpu=1), "gpu: unknown key (did you mean 'gpus'?)"),
        (table("a", '["x"]') + "[jobs]\nenabled = false\n", "services are jobs"),
    ],
)
def test_what_a_table_may_not_say(make_home: MakeHome, toml: str, message: str) -> None:
    checked = make_home(toml).treadle("check", "treadle.toml")
    assert checked.returncode == Exit.CONFIG
    assert message in checked.stderr


def test_nobody_submits_an_instance_of_a_service(start_node: StartNode) -> None:
    node = start_node("")
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    answer = node.local.post(
        "/treadle/v1/jobs", json={"job": {"command": ["true"], "service": "web@1"}}
    )
    assert answer.status_code == 400
    assert "services come from the configuration file" in answer.json()["error"]
