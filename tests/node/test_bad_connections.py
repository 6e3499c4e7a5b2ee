"""Connections that keep the node waiting or talk nonsense: they end, and others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from .bodies import body, infer, result, tensor
from .conftest import StartNode
from .nodes import RunningNode, wait_until
from .wire import Wire, head, wire

CONFIGURATION = """
[http]
silence_seconds = 0.5
max_body_bytes = 200_000

[[model]]
name = "step"
factory = "steps:Step"
worker = "all"

[[model]]
name = "zeros"
factory = "plain:Zeros"
worker = "all"
"""
STEP = "/v2/models/step/infer"
MUCH = 10_000_000  # elements of four bytes
ONE = orjson.dumps(body(1))
LENGTH = {"Content-Length": len(ONE)}


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> Iterator[RunningNode]:
    """The node, which must serve on after each test and hold no connection of it."""
    open_files = count_open_files(shared)
    yield shared
    wait_until(lambda: count_open_files(shared) <= open_files, "the connections are closed")
    assert result(infer(shared, "step", 1)) == [2]


def count_open_files(node: RunningNode) -> int:
    """Files and sockets that the node has open, with the two connections that the tests keep."""
    assert result(infer(node, "step", 1)) == [2]
    assert node.status()
    return sum(1 for _ in Path(f"/proc/{node.process.pid}/fd").iterdir())


def ask_for_much(client: Wire, connection: str = "keep-alive") -> None:
    """Ask for an answer that no socket's buffer holds."""
    given = tensor([MUCH], name="count", shape=[1])
    content = orjson.dumps({"inputs": [given], "parameters": {"binary_data_output": True}})
    headers = {"Content-Length": len(content), "Connection": connection}
    client.send(head("/v2/models/zeros/infer", headers), content)


def test_half_a_body_then_silence_is_given_up_with_the_reason(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH), ONE[:20])
        status, headers, content = client.answer()
        assert status == 408
        assert "stopped after 20 bytes" in content["error"]
        assert headers["connection"] == "close"
        assert client.read_to_the_end() == b""


def test_no_body_at_all_where_one_was_announced_is_given_up(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH))
        assert client.answer()[0] == 408


def test_a_chunked_body_that_stops_is_given_up(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, {"Transfer-Encoding": "chunked"}), b"10\r\n", ONE[:16], b"\r\n")
        assert client.answer()[0] == 408


def test_half_a_body_for_another_path_is_given_up(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head("/v2/repository/index", {"Content-Length": 100}), b"{")
        assert client.answer()[0] == 408


def test_a_second_request_that_stops_is_given_up_after_the_first_was_answered(
    node: RunningNode,
) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH), ONE, head(STEP, LENGTH), ONE[:20])
        answers = client.read_to_the_end()
    assert answers.count(b"HTTP/1.1 ") == 2
    assert answers.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 408" in answers


def test_a_slow_body_that_keeps_coming_is_read(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH))
        for byte in ONE:
            client.send(bytes([byte]))
        assert client.answer()[0] == 200


def test_a_client_that_hangs_up_in_the_middle_of_its_body_leaves_nothing_behind(
    node: RunningNode,
) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH), ONE[:20])


def test_a_connection_that_never_says_anything_is_closed(node: RunningNode) -> None:
    with wire(node) as client:
        assert client.read_to_the_end() == b""


@pytest.mark.parametrize("beginning", [b"P", b"POST /v2", head(STEP, LENGTH)[:-2]])
def test_headers_that_never_end_are_given_up(node: RunningNode, beginning: bytes) -> None:
    with wire(node) as client:
        client.send(beginning)
        assert b"200" not in client.read_to_the_end()


def test_too_large_headers_are_refused(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, {"X-Large": "a" * 100_000})[:-2])
        assert client.answer()[0] == 431


def test_headers_that_keep_coming_are_refused_once_they_are_too_large(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH)[:-2])
        line = b"X-More: " + b"a" * 1000 + b"\r\n"
        wait_until(lambda: not client.send_if_possible(line), "the node hangs up")


def test_headers_that_keep_coming_behind_an_unanswered_request_are_not_taken_in_for_ever(
    node: RunningNode,
) -> None:
    line = b"X-More: " + b"a" * 8000 + b"\r\n"
    with node.shut("step"), wire(node) as client:
        client.send(head(STEP, LENGTH), ONE, head(STEP, LENGTH)[:-2])
        assert not client.can_send(line * 100, times=100)  # no buffer holds 80 MB


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\r\n\r\n",
        b"\0" * 100,
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\x5a" * 50,  # a TLS client's first words
        b"POST " + STEP.encode() + b" HTTP/9.9\r\n\r\n",
        b"POST /\xff HTTP/1.1\r\nHost: node\r\n\r\n",
        head(STEP, {"Content-Length": -1}),
        head(STEP, {"Content-Length": "1e3"}),
        head(STEP, {"Content-Length": 2**70}),
        head(STEP, {"Content-Length": "5\r\nContent-Length: 6"}),
        head(STEP, {"Content-Length": "5", "Transfer-Encoding": "chunked"}),
        head(STEP, {"Transfer-Encoding": "chunked"}) + b"xyz\r\n",
        head(STEP, {"Bad Name": "1"}),
    ],
)
def test_what_is_not_http_is_refused(node: RunningNode, nonsense: bytes) -> None:
    with wire(node) as client:
        client.send(nonsense)
        assert client.read_to_the_end().startswith(b"HTTP/1.1 400")


def test_a_body_announced_over_the_limit_is_refused_before_it_comes(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, {"Content-Length": 200_001}))
        status, headers, content = client.answer()
        assert status == 413
        assert "200000" in content["error"]
        assert headers["connection"] == "close"
        assert client.read_to_the_end() == b""


def test_a_chunked_body_is_refused_once_it_is_over_the_limit(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, {"Transfer-Encoding": "chunked"}))
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        client.send(*[chunk] * 7)
        assert client.answer()[0] == 413


def test_a_body_for_another_path_has_a_limit_too(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head("/v2/repository/index", {"Transfer-Encoding": "chunked"}))
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        client.send(*[chunk] * 3)
        assert client.answer()[0] == 413


def test_a_client_that_sends_a_large_body_all_the_same_reads_why_it_is_refused(
    node: RunningNode,
) -> None:
    answer = node.http.post(STEP, content=b" " * 30_000_000)
    assert answer.status_code == 413


def test_a_client_that_never_reads_its_answer_is_cut_off(node: RunningNode) -> None:
    open_files = count_open_files(node)
    with wire(node) as client:
        ask_for_much(client)
        wait_until(lambda: count_open_files(node) > open_files, "the connection is there")
        wait_until(lambda: count_open_files(node) <= open_files, "the connection is closed")
        assert len(client.read_to_the_end()) < 4 * MUCH
    assert node.status()["open_requests"] == 0


@pytest.mark.parametrize("words", [b"nonsense", b"X-More: a\r\n"])
def test_a_client_that_goes_on_talking_but_never_reads_is_cut_off(
    node: RunningNode, words: bytes
) -> None:
    open_files = count_open_files(node)
    with wire(node) as client:
        ask_for_much(client)
        wait_until(lambda: count_open_files(node) > open_files, "the connection is there")
        client.send(b"GET /v2 HTTP/1.1\r\n")

        def is_closed_while_talking() -> bool:
            client.send_if_possible(words)
            return count_open_files(node) <= open_files

        wait_until(is_closed_while_talking, "the connection is closed")


def test_a_slow_reader_that_goes_on_reading_gets_all_of_its_answer(node: RunningNode) -> None:
    with wire(node) as client:
        ask_for_much(client, connection="close")
        received = 0
        while chunk := client.receive(1 << 20):
            received += len(chunk)
        assert received > 4 * MUCH


def test_pipelined_requests_are_answered_in_order(node: RunningNode) -> None:
    with wire(node) as client:
        last = orjson.dumps(body(3))
        client.send(
            *(head(STEP, LENGTH) + orjson.dumps(body(x)) for x in (1, 2)),
            head(STEP, {"Content-Length": len(last), "Connection": "close"}) + last,
        )
        answers = client.read_to_the_end()
    places = [answers.index(b'"data":[%d]' % y) for y in (2, 3, 4)]
    assert places == sorted(places)


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(node: RunningNode) -> None:
    with wire(node) as client:
        client.send(head(STEP, LENGTH | {"Expect": "100-continue", "Connection": "close"}))
        assert client.receive(100).startswith(b"HTTP/1.1 100 ")
        client.send(ONE)
        assert client.read_to_the_end().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_a_client_that_would_rather_speak_another_protocol_is_answered_in_this_one(
    node: RunningNode, protocol: str
) -> None:
    headers = LENGTH | {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol}
    with wire(node) as client:
        for _ in range(2):
            client.send(head(STEP, headers | {"HTTP2-Settings": "AAEAAEAAAAIAAAAB"}), ONE)
            assert client.answer()[0] == 200
