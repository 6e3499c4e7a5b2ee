"""Very many clients at once, most of which want nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bodies import infer, result
from .conftest import StartNode
from .nodes import wait_until

CONNECTIONS = 10_000
SPARE_FILES = 500


@pytest.fixture
def connections() -> Iterator[int]:
    """How many connections this process may have, up to what the tests want."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + SPARE_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    yield allowed - SPARE_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_good_requests_are_answered_beside_ten_thousand_idle_connections(
    start_node: StartNode, connections: int
) -> None:
    node = start_node("""
        [http]
        silence_seconds = 600

        [[model]]
        name = "step"
        factory = "steps:Step"
    """)
    open_files = Path(f"/proc/{node.process.pid}/fd")

    def count() -> int:
        return sum(1 for _ in open_files.iterdir())

    before = count()
    with contextlib.ExitStack() as idle:
        for number in range(connections):
            connection = idle.enter_context(socket.create_connection(("127.0.0.1", node.port)))
            if number % 2:
                connection.sendall(b"POST /v2/models/step/infer HTTP/1.1\r\nHost: node\r\n")
        wait_until(lambda: count() >= before + connections, "the node holds all connections")
        for x in range(20):
            assert result(infer(node, "step", x)) == [x + 1]
        assert node.http.get("/v2/health/ready").status_code == 200
    wait_until(lambda: count() < before + 10, "the node has let them go")
    assert result(infer(node, "step", 1)) == [2]
