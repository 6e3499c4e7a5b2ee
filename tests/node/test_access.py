"""Who may do what: with the token, without it, and over the local socket."""

from __future__ import annotations

import pytest

from .bodies import body, error, infer, result, tensor
from .conftest import StartNode
from .nodes import RunningNode

TOKEN = "warp-and-weft"
MODELS = """
[[model]]
name = "step"
factory = "steps:Step"
worker = "all"

[[model]]
name = "variables"
factory = "plain:Variables"
worker = "all"

[[model]]
name = "broken"
factory = "unloadable:raises"
"""
PATHS = [
    ("GET", "/v2"),
    ("GET", "/v2/models/step"),
    ("GET", "/v2/models/stats"),
    ("POST", "/v2/models/step/infer"),
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/step/load"),
    ("POST", "/v2/repository/models/step/unload"),
    ("GET", "/metrics"),
    ("GET", "/treadle/v1/status"),
    ("POST", "/treadle/v1/stop"),
    ("GET", "/v2/health/../models/step"),
    ("GET", "/nowhere"),
]


@pytest.fixture(scope="module")
def guarded(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS, environment={"TREADLE_HTTP_TOKEN": TOKEN})


@pytest.fixture(scope="module")
def plain(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", f"Bearer {TOKEN}x", f"bearer{TOKEN}", TOKEN, "Bearer \xe9"],
)
def test_a_request_without_the_token_is_turned_away(
    guarded: RunningNode, authorization: str | None
) -> None:
    headers = [] if authorization is None else [("Authorization", authorization.encode("latin-1"))]
    answer = guarded.http.post(
        "/v2/models/step/infer",
        json=body(1),
        headers=[(name.encode(), value) for name, value in headers],
    )
    assert "Authorization: Bearer" in error(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_no_path_is_open_without_the_token(guarded: RunningNode, method: str, path: str) -> None:
    error(guarded.http.request(method, path), 401)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_request_with_the_token_is_served(guarded: RunningNode, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {TOKEN}"}
    answer = guarded.http.post("/v2/models/step/infer", json=body(1), headers=headers)
    assert result(answer) == [2]
    assert guarded.http.get("/metrics", headers=headers).status_code == 200
    assert guarded.http.get("/treadle/v1/status", headers=headers).status_code == 200


def test_the_token_allows_loading_and_unloading(guarded: RunningNode) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("unload", "load"):
        answer = guarded.http.post(f"/v2/repository/models/step/{path}", headers=headers)
        assert answer.status_code == 200


def test_health_needs_no_token_and_tells_strangers_nothing_else(guarded: RunningNode) -> None:
    assert guarded.http.get("/v2/health/live").status_code == 200
    answer = guarded.http.get("/v2/health/ready")
    assert answer.status_code == 400
    assert "weights" not in answer.text
    assert "weights" in guarded.local.get("/v2/health/ready").text


def test_the_local_socket_needs_no_token(guarded: RunningNode) -> None:
    assert result(guarded.local.post("/v2/models/step/infer", json=body(1))) == [2]
    assert guarded.home.treadle("models").returncode == 0


def test_the_token_is_told_to_no_model_and_written_to_no_log(guarded: RunningNode) -> None:
    given = tensor(["TREADLE_HTTP_TOKEN"], name="name", datatype="BYTES", shape=[1])
    answer = guarded.local.post("/v2/models/variables/infer", json={"inputs": [given]})
    assert result(answer) == [""]
    assert TOKEN not in guarded.local.get("/treadle/v1/status").text
    assert TOKEN not in guarded.log.read_text() + guarded.output.read_text()
    assert TOKEN not in (guarded.home.folder / "state" / "node.log").read_text()


@pytest.mark.parametrize("action", ["load", "unload"])
def test_models_are_not_controlled_over_tcp_unless_that_is_opened(
    plain: RunningNode, action: str
) -> None:
    path = f"/v2/repository/models/step/{action}"
    assert "open_model_control" in error(plain.http.post(path), 403)
    assert result(infer(plain, "step", 1)) == [2]
    for owners in ("unload", "load"):
        assert plain.local.post(f"/v2/repository/models/step/{owners}").status_code == 200


def test_an_unknown_model_is_no_way_around(plain: RunningNode) -> None:
    error(plain.http.post("/v2/repository/models/nobody/load"), 403)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/treadle/v1/status"), ("POST", "/treadle/v1/stop")]
)
def test_the_nodes_own_paths_are_for_its_owner(plain: RunningNode, method: str, path: str) -> None:
    assert "owner" in error(plain.http.request(method, path), 403)
    assert plain.http.get("/v2/health/live").status_code == 200


def test_model_control_can_be_opened_to_everyone(start_node: StartNode) -> None:
    node = start_node("[http]\nopen_model_control = true\n" + MODELS)
    for action in ("unload", "load"):
        path = f"/v2/repository/models/step/{action}"
        assert node.http.post(path).status_code == 200
    error(node.http.get("/treadle/v1/status"), 403)
