"""Answers in parts over HTTP, as server-sent events."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import orjson
import pytest

from .bodies import body, error, result, tensor
from .conftest import StartNode
from .nodes import RunningNode, wait_until
from .shared import MakeMemory
from .wire import head, wire

MODELS = """
[node]
drain_seconds = 25

[http]
silence_seconds = 60

[[model]]
name = "spell"
factory = "speaking:Spells"
streaming = true
share = 0.1

[[model]]
name = "loud"
factory = "speaking:Spells"
parameters = { times = 300000 }
streaming = true
share = 0.1

[[model]]
name = "unheard"
factory = "speaking:Spells"
parameters = { times = 300000 }
streaming = true
share = 0.1
stream_stall_seconds = 0.2

[[model]]
name = "both"
factory = "speaking:Spells"
streaming = true
replicas = 2
share = 0.1

[[model]]
name = "whole"
factory = "speaking:SpellsAtOnce"
streaming = true
share = 0.1

[[model]]
name = "unsaid"
factory = "speaking:Spells"
share = 0.1

[[model]]
name = "step"
factory = "steps:Step"
share = 0.1
"""
Event = tuple[str, Any]
"""Its kind, and its data."""


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"inputs": [tensor([text], name="text", datatype="BYTES", shape=[1])], **more}


def path(model: str) -> str:
    return f"/v2/models/{model}/infer_stream"


def events_of(answer: httpx.Response) -> Iterator[Event]:
    kind = ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, orjson.loads(value)
            kind = ""
        else:
            assert not line


@contextlib.contextmanager
def asking(node: RunningNode, text: str, model: str = "spell") -> Iterator[Iterator[Event]]:
    """The events of an answer, to be read while it is given."""
    with node.http.stream("POST", path(model), json=said(text)) as answer:
        assert answer.status_code == 200
        yield events_of(answer)


def letter(event: Event) -> str:
    kind, content = event
    assert not kind, content
    (output,) = content["outputs"]
    (text,) = output["data"]
    return str(text)


def is_final(event: Event) -> bool:
    return bool(event[1]["parameters"]["triton_final_response"])


def spelt(events: Iterator[Event]) -> str:
    """The letters of an answer that must end well."""
    *parts, last = events
    assert [is_final(part) for part in parts] == [False] * len(parts)
    assert is_final(last)
    assert last[1]["outputs"] == []
    return "".join(map(letter, parts))


def broken(events: Iterator[Event]) -> tuple[str, str]:
    """The letters of an answer that must end with an error, and that."""
    *parts, (kind, content) = events
    assert kind == "error"
    return "".join(map(letter, parts)), content["error"]


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS)


def test_parts_come_in_order_and_the_last_event_says_so(shared: RunningNode) -> None:
    answer = shared.http.post(path("spell"), json=said("hello", id="7"))
    assert answer.headers["content-type"] == "text/event-stream"
    events = list(events_of(answer))
    assert spelt(iter(events)) == "hello"
    assert {content["id"] for _, content in events} == {"7"}
    assert {content["model_name"] for _, content in events} == {"spell"}


def test_a_part_comes_before_the_next_is_made(shared: RunningNode) -> None:
    with shared.shut("spell") as gate, asking(shared, "a_b") as events:
        assert letter(next(events)) == "a"
        gate.unlink()
        assert spelt(events) == "_b"


def test_an_answer_may_have_no_part_at_all(shared: RunningNode) -> None:
    with asking(shared, "") as events:
        assert spelt(events) == ""


def test_a_model_that_may_yield_can_give_a_whole_answer(shared: RunningNode) -> None:
    with asking(shared, "hello", "whole") as events:
        assert spelt(events) == "hello"


def test_an_ordinary_model_has_one_event(shared: RunningNode) -> None:
    (event,) = events_of(shared.http.post(path("step"), json=body(3)))
    assert is_final(event)
    assert event[1]["outputs"][0]["data"] == [4]


def test_large_parts_arrive_whole_and_one_after_the_other(shared: RunningNode) -> None:
    with asking(shared, "abcdefghijklmnopqrstuvwxyz", "loud") as events:
        assert spelt(events) == "".join(x * 300_000 for x in "abcdefghijklmnopqrstuvwxyz")


def test_many_streams_at_once(shared: RunningNode, pool: ThreadPoolExecutor) -> None:
    def ask(text: str) -> str:
        with asking(shared, text, "both") as events:
            return spelt(events)

    texts = [f"this is number {n}" for n in range(60)]
    assert list(pool.map(ask, texts)) == texts


def test_who_asks_for_one_answer_is_told_how_to_ask(shared: RunningNode) -> None:
    said_so = error(shared.http.post("/v2/models/spell/infer", json=said("a")), 400)
    assert "POST /v2/models/spell/infer_stream" in said_so
    assert "ModelStreamInfer" in said_so
    config = shared.http.get("/v2/models/spell/config").json()
    assert config["model_transaction_policy"] == {"decoupled": True}


def test_before_the_first_part_an_error_has_its_status(shared: RunningNode) -> None:
    error(shared.http.post(path("nobody"), json=said("a")), 404)
    error(shared.http.post(path("spell"), json=body(1)), 400)
    assert "cannot say this" in error(shared.http.post(path("spell"), json=said("!")), 500)
    binary = said("a", parameters={"binary_data_output": True})
    assert "events are JSON" in error(shared.http.post(path("spell"), json=binary), 400)
    assert error(shared.http.get(path("spell")), 405)


def test_parts_do_not_go_to_shared_memory(shared: RunningNode, memory: MakeMemory) -> None:
    region = {"key": memory(8).key, "byte_size": 8}
    url = "/v2/systemsharedmemory/region/r/register"
    assert shared.local.post(url, json=region).status_code == 200
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    content = said("a", outputs=[{"name": "letter", "parameters": place}])
    assert "overwrite" in error(shared.local.post(path("spell"), json=content), 400)


@pytest.mark.parametrize(("last", "why"), [("!", "cannot say this"), ("?", "did not return")])
def test_a_model_that_fails_in_the_middle(shared: RunningNode, last: str, why: str) -> None:
    with asking(shared, "ab" + last) as events:
        letters, reason = broken(events)
    assert letters == "ab"
    assert why in reason
    with asking(shared, "again") as events:
        assert spelt(events) == "again"


def test_a_worker_that_dies_in_the_middle_harms_nobody_else(shared: RunningNode) -> None:
    with shared.shut("both") as gate, asking(shared, "a_z", "both") as other:
        assert letter(next(other)) == "a"
        with asking(shared, "ab#") as events:
            letters, reason = broken(events)
        assert letters in {"", "a", "ab"}
        assert "SIGKILL" in reason
        gate.unlink()
        assert spelt(other) == "_z"
    with asking(shared, "again") as events:
        assert spelt(events) == "again"


def test_a_client_that_goes_away_ends_the_generator(shared: RunningNode) -> None:
    shared.forget_what_ran()
    with asking(shared, "*") as events:
        assert letter(next(events)) == "*"
    shared.wait_for_run("spell: closed")
    with asking(shared, "next") as events:
        assert spelt(events) == "next"


def test_a_client_that_never_reads_ends_the_generator(shared: RunningNode) -> None:
    shared.forget_what_ran()
    content = orjson.dumps(said("*"))
    with wire(shared) as client:
        client.send(head(path("unheard"), {"Content-Length": len(content)}), content)
        shared.wait_for_run("unheard: *")
        with asking(shared, "", "unheard") as events:
            assert spelt(events) == ""
        assert shared.ran() == ["unheard: *", "unheard: closed", "unheard: "]


def test_a_model_that_yields_must_be_configured_so(shared: RunningNode) -> None:
    answer = shared.http.post("/v2/models/unsaid/infer", json=said("a"))
    assert "streaming = true" in error(answer, 500)


def test_parts_are_counted(start_node: StartNode) -> None:
    node = start_node(MODELS)
    with asking(node, "abc") as events:
        spelt(events)
    metrics = node.http.get("/metrics").text
    labels = '{model="spell",priority="normal"}'
    assert f"treadle_parts_total{labels} 3.0" in metrics
    assert f"treadle_first_part_seconds_count{labels} 1.0" in metrics
    assert f"treadle_request_seconds_count{labels} 1.0" in metrics


def test_a_node_that_drains_gives_every_part(start_node: StartNode) -> None:
    node = start_node(MODELS)
    with node.shut("spell") as gate, asking(node, "a_b") as events:
        assert letter(next(events)) == "a"
        node.signal(signal.SIGTERM)
        wait_until(lambda: node.http.get("/v2/health/ready").status_code == 400, "it drains")
        error(node.http.post(path("spell"), json=said("late")), 503)
        gate.unlink()
        assert spelt(events) == "_b"
    assert node.wait_ended() == 0


def test_what_goes_on_at_the_drain_limit_is_ended_with_the_reason(start_node: StartNode) -> None:
    node = start_node(MODELS.replace("drain_seconds = 25", "drain_seconds = 0.3"))
    with node.shut("spell"), asking(node, "a_b") as events:
        assert letter(next(events)) == "a"
        node.signal(signal.SIGTERM)
        letters, reason = broken(events)
        assert not letters
        assert "shuts down" in reason
    assert node.wait_ended() == 0


def test_unloading_waits_for_the_last_part(start_node: StartNode, pool: ThreadPoolExecutor) -> None:
    node = start_node(MODELS)
    with node.shut("spell") as gate, asking(node, "a_b") as events:
        assert letter(next(events)) == "a"
        unloading = pool.submit(node.local.post, "/v2/repository/models/spell/unload")
        wait_until(lambda: node.model("spell")["state"] == "UNLOADING", "it is unloaded")
        gate.unlink()
        assert spelt(events) == "_b"
        assert unloading.result().status_code == 200
    assert node.model("spell")["state"] == "UNAVAILABLE"


def test_a_model_that_gives_no_part_for_too_long_is_ended(start_node: StartNode) -> None:
    node = start_node(MODELS.replace('name = "spell"', 'name = "spell"\nrun_limit_seconds = 0.5'))
    with node.shut("spell"), asking(node, "a_b") as events:
        letters, reason = broken(events)
    assert letters == "a"
    assert "longer than 0.5 s" in reason
    assert result(node.http.post("/v2/models/step/infer", json=body(1))) == [2]
