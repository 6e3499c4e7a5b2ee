from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from treadle.bench.ownnode import OwnNode
from treadle.client.node import NodeClient
from treadle.errors import StartError


async def status_of(node: OwnNode) -> Any:
    async with NodeClient(node.socket) as client:
        await node.wait_ready(client)
        return await client.get("/treadle/v1/status")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_serves_under_the_policy_and_ends(two_models: Path) -> None:
    with OwnNode(two_models, "fifo") as node:
        status = asyncio.run(status_of(node))
        assert status["policy"] == "fifo"
        assert [model["state"] for model in status["models"]] == ["READY", "READY"]
        assert is_running(status["pid"])
    assert not is_running(status["pid"])
    assert not node.socket.parent.exists()


def test_two_run_side_by_side_whatever_the_environment_says(
    two_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_SOCKET", "/nowhere/node.sock")
    with OwnNode(two_models) as one, OwnNode(two_models) as other:
        pids = {asyncio.run(status_of(node))["pid"] for node in (one, other)}
    assert len(pids) == 2


def test_it_ends_when_the_context_is_left_by_an_error(two_models: Path) -> None:
    pids = []

    def fail_meanwhile() -> None:
        with OwnNode(two_models) as node:
            pids.append(asyncio.run(status_of(node))["pid"])
            raise RuntimeError("meanwhile")

    with pytest.raises(RuntimeError, match="meanwhile"):
        fail_meanwhile()
    assert not is_running(pids[0])


def test_a_model_that_does_not_load_is_named(configuration: Any) -> None:
    configuration.add("fine")
    configuration.add("absent", kind="Missing")
    with (
        OwnNode(configuration.file) as node,
        pytest.raises(StartError, match=r"'absent' does not load: .*no callable 'Missing'"),
    ):
        asyncio.run(status_of(node))


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text("nonsense = 1")
    with (
        OwnNode(file) as node,
        pytest.raises(StartError, match=r"(?s)ended with exit code 3.*nonsense"),
    ):
        asyncio.run(status_of(node))
