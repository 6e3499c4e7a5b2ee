"""What the node writes down: for people on standard error, for programs in its state folder."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from treadle.node.logs import LogFile

from .bodies import body, error
from .conftest import StartNode
from .nodes import RunningNode, wait_until
from .wire import head, wire

UPGRADE = {"Connection": "Upgrade, close", "Upgrade": "websocket"}
FAULTY = (
    '[[model]]\nname = "faulty"\nfactory = "faulty:Faulty"\nparameters = { fault = "raises" }\n'
)


def fail(node: RunningNode, request_id: str) -> None:
    headers = {"x-request-id": request_id}
    error(node.http.post("/v2/models/faulty/infer", json=body(13), headers=headers), 500)


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def log_file(node: RunningNode) -> list[dict[str, Any]]:
    return entries((node.home.folder / "state" / "node.log").read_text())


def test_the_log_file_is_json_whatever_people_read(start_node: StartNode) -> None:
    node = start_node(FAULTY)
    fail(node, "r-17")
    assert any(
        entry["model"] == "faulty" and entry["request_id"] == "r-17" and entry["status"] == 500
        for entry in log_file(node)
        if "request_id" in entry
    )
    assert "request_id=r-17" in node.log.read_text()
    assert not node.log.read_text().startswith("{")
    for entry in log_file(node):
        assert entry.keys() >= {"time", "level", "logger", "message"}


def test_the_log_for_people_can_be_json_too(start_node: StartNode) -> None:
    node = start_node('[node]\nlog_format = "json"\n' + FAULTY)
    fail(node, "r-18")
    assert "r-18" in {entry.get("request_id") for entry in entries(node.log.read_text())}


def test_a_failure_is_logged_once(start_node: StartNode) -> None:
    node = start_node(FAULTY)
    fail(node, "r-19")
    wait_until(lambda: "r-19" in node.log.read_text(), "the failure is logged")
    warnings = [entry for entry in log_file(node) if entry["level"] == "warning"]
    assert len(warnings) == 1


def test_a_quiet_node_logs_errors_only(start_node: StartNode) -> None:
    node = start_node('[node]\nlog_level = "error"\n' + FAULTY)
    fail(node, "r-20")
    assert node.log.read_text() == ""


def test_a_clients_mistakes_do_not_fill_the_log(start_node: StartNode) -> None:
    node = start_node(FAULTY)
    before = node.log.read_text()
    error(node.http.post("/v2/models/faulty/infer", content=b"{"), 400)
    error(node.http.post("/v2/models/nobody/infer", json=body(1)), 404)
    error(node.http.get("/nowhere"), 404)
    error(node.http.get("/v2/models/faulty/infer"), 405)
    for words in (b"nonsense\r\n\r\n", head("/v2", UPGRADE, method="GET")):
        with wire(node) as client:
            client.send(words)
            assert client.receive(100)
    assert node.log.read_text() == before


def test_a_log_that_cannot_be_written_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "node.log"
    place.symlink_to("/dev/full")
    handler = LogFile(place)

    def log(count: int) -> str:
        for _ in range(count):
            handler.handle(logging.makeLogRecord({"msg": "a line"}))
        return capsys.readouterr().err

    try:
        assert log(3) == f"{place} is not written: No space left on device\n"
        assert log(1) == ""
    finally:
        with suppress(OSError):  # it says so again
            handler.close()
