"""Loads on servers that are there: one that misbehaves in every way, and a node."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from treadle.bench.arrivals import constant
from treadle.bench.loadtest.loads import Load
from treadle.bench.loadtest.measure import Plan, Search, measure
from treadle.bench.loadtest.results import Arrivals, LimitedBy, Verdict
from treadle.bench.loadtest.sender import what_is_wrong
from treadle.bench.loadtest.target import Wanted
from treadle.bench.ownnode import OwnNode
from treadle.client.node import Answer, NodeClient
from treadle.errors import ConfigError, TreadleError

COMMAND = [sys.executable, "-m", "treadle.cli.main", "loadtest"]
LIMIT_SECONDS = 60
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
METADATA = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}


def no_stage(text: str, seconds: float) -> None:
    pass


class Misbehaving:
    """Answers each request of a round in another way, the first of all as it should."""

    def __init__(self, *ways: str) -> None:
        self._ways = ways
        self._count = -1
        self.seen: list[dict[str, Any]] = []

    async def infer(self, request: web.Request) -> web.StreamResponse:
        body, length = await request.read(), request.headers["Inference-Header-Content-Length"]
        self.seen.append(json.loads(body[: int(length)]))
        way = self._ways[self._count % len(self._ways)] if self._count >= 0 else "right"
        self._count += 1
        match way:
            case "right":
                return web.json_response({"outputs": [OUTPUT]})
            case "wrong":
                return web.json_response({"outputs": [OUTPUT | {"name": "z"}]})
            case "full":
                message = f"the queue is full ({self._count} wait)"
                return web.json_response({"error": message}, status=503)
            case "broken":
                return web.json_response({"error": "out of order"}, status=500)
            case "hangs up":
                assert request.transport is not None
                request.transport.close()
        await asyncio.sleep(LIMIT_SECONDS)
        raise AssertionError

    async def about(self, request: web.Request) -> web.Response:
        return web.json_response({"name": "other", "version": "2"})

    async def model(self, request: web.Request) -> web.Response:
        return web.json_response(METADATA)


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    """Starts servers, which end with the test."""
    runners: list[web.AppRunner] = []

    async def started(server: Misbehaving) -> str:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v2", server.about),
                web.get("/v2/models/m", server.model),
                web.post("/v2/models/m/infer", server.infer),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield started
    for runner in runners:
        await runner.cleanup()


def plan(url: str, load: Load, *, search: Search | None = None, seconds: float = 1.0) -> Plan:
    return Plan(
        wanted=Wanted(
            socket=None,
            url=url,
            loads=(load,),
            connections=0,
            timeout_seconds=2.0,
            tell_timeout=True,
            pool=1,
            json_bodies=False,
            seed=1,
        ),
        arrivals=Arrivals(pattern="constant"),
        pattern=constant,
        seconds=seconds,
        warm_up_seconds=0.0,
        processes=1,
        search=search,
    )


async def test_every_way_to_miss_is_counted_as_what_it_is(start: Any) -> None:
    server = Misbehaving("right", "wrong", "full", "broken", "hangs up", "silent")
    url = await start(server)
    load = Load(model="m", rate=60.0, p99_seconds=1.5, priority="background")
    result = await measure(plan(url, load), no_stage)
    assert result.run is not None
    figures = result.run.models["m"]
    assert (figures.offered, figures.answered) == (60, 10)
    assert figures.refused == {"503: the queue is full (N wait)": 10}
    wrong = "wrong answer: outputs z (FP32) and not y (FP32)"
    assert {why: figures.failed.pop(why) for why in (wrong, "500: out of order", "timed out")} == {
        wrong: 10,
        "500: out of order": 10,
        "timed out": 10,
    }
    ((reason, count),) = figures.failed.items()
    assert ("no answer from" in reason, count) == (True, 10)
    assert figures.within_fraction is not None
    assert figures.within_fraction <= 1 / 6
    assert (result.server, result.target) == ("other 2", url)
    assert server.seen[-1]["parameters"]["priority"] == 3
    assert server.seen[-1]["parameters"]["timeout"] == 2_000_000


async def test_a_search_on_a_server_that_refuses_finds_nothing(start: Any) -> None:
    url = await start(Misbehaving("full", "right"))
    load = Load(model="m", rate=20.0, p99_seconds=0.4)
    search = Search(precision=0.05, most=1000.0)
    result = await measure(plan(url, load, search=search, seconds=0.25), no_stage)
    assert result.found is not None
    assert (result.run, result.found.rate, result.found.rates) == (None, None, {})
    assert result.found.limited_by is not LimitedBy.MAX_RATE
    assert {run.verdict for run in result.found.trials} <= {Verdict.MISSED, Verdict.INVALID}


async def test_a_search_needs_an_objective(start: Any) -> None:
    url = await start(Misbehaving("right"))
    search = Search(precision=0.05, most=1000.0)
    with pytest.raises(ConfigError, match="--find: no model has an objective"):
        await measure(plan(url, Load(model="m", rate=1.0), search=search), no_stage)


async def test_a_model_that_answers_wrong_from_the_start_is_named(start: Any) -> None:
    server = Misbehaving("broken")
    url = await start(server)
    await measure(plan(url, Load(model="m", rate=1.0)), no_stage)
    with pytest.raises(TreadleError, match=r"model 'm': out of order \(HTTP 500\)"):
        await measure(plan(url, Load(model="m", rate=1.0)), no_stage)


@pytest.mark.parametrize(
    ("body", "length", "wrong"),
    [
        (b'{"outputs": [{"name": "y", "datatype": "FP32", "data": [1]}]}', None, ""),
        (b'{"outputs": []}', None, "outputs none and not y (FP32)"),
        (b'{"outputs": 3}', None, "not an answer of the protocol"),
        (b"[]", None, "not an answer of the protocol"),
        (b"<html>", None, "not an answer of the protocol"),
        (b"<html>" * 20_000, None, ""),  # too long to be looked into
        (b'{"outputs": []}12345', "15", "not as long as it says"),
    ],
)
def test_what_is_no_answer_is_found_out(body: bytes, length: str | None, wrong: str) -> None:
    outputs = frozenset({("y", "FP32")})
    assert what_is_wrong(Answer(200, body, length), outputs) == wrong


@pytest.fixture
def node(two_models: Path) -> Iterator[OwnNode]:
    with OwnNode(two_models) as node:
        yield node


async def ready(node: OwnNode) -> None:
    async with NodeClient(node.socket) as client:
        await node.wait_ready(client)


def run(
    node: OwnNode, monkeypatch: pytest.MonkeyPatch, *options: str
) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("TREADLE_SOCKET", str(node.socket))
    return subprocess.run(
        [*COMMAND, *options], check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


async def test_the_command_puts_a_load_on_a_node(
    node: OwnNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await ready(node)
    output, plot = tmp_path / "results.json", tmp_path / "plot.svg"
    options = ["--seconds", "1", "--warm-up", "0.5", "--processes", "2", "--json"]
    files = ["--output", str(output), "--plot", str(plot)]
    done = run(node, monkeypatch, "urgent:rate=40", "patient:rate=20,p99=20", *options, *files)
    assert done.stdout == output.read_text()
    document = json.loads(done.stdout)
    assert [load["p99_seconds"] for load in document["loads"]] == [30.0, 20.0]
    result = document["run"]
    assert set(result["models"]) == {"urgent", "patient"}
    assert result["total"]["offered"] == result["total"]["answered"] > 0
    assert result["verdict"] in {"held", "invalid"}  # the machine may be busy
    assert {second["model"] for second in result["series"]} == {"urgent", "patient"}
    assert "--warm-up 0.5" in document["command"]
    assert plot.read_text().startswith("<?xml")
    assert done.returncode == (0 if result["verdict"] == "held" else 1)


async def test_the_command_finds_the_highest_rate(
    node: OwnNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await ready(node)
    options = ["--find", "--rate", "20", "--max-rate", "40", "--seconds", "1", "--warm-up", "0"]
    plot = tmp_path / "plot.svg"
    done = run(node, monkeypatch, "urgent", *options, "--plot", str(plot))
    assert "OFFER/s" in done.stdout
    assert "saved: " in done.stdout
    assert plot.read_text().startswith("<?xml")
    if done.returncode == 0:  # else the machine was busy, and it says so
        assert "holds up to" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["nobody", "--rate", "1"], 3, "no model 'nobody'; there are urgent, patient"),
        (["urgent"], 3, "urgent: no rate; allowed: --rate R, urgent:rate=R, or --find"),
        (["patient", "--find"], 3, "--find: no model has an objective: --p99, or MODEL:p99="),
        (["urgent", "--rate", "1", "-i", "soon"], 1, "input 'x': soon: neither a file nor JSON"),
        (["urgent", "--rate", "1", "-i", "[1, 2]"], 1, "model 'urgent': "),
    ],
)
async def test_what_does_not_fit_the_node_is_one_line(
    node: OwnNode, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, text: str
) -> None:
    await ready(node)
    done = run(node, monkeypatch, *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--rate", "0"], "--rate: '0'; allowed: a number above 0"),
        (["--p99", "soon"], "--p99: 'soon'; allowed: a number above 0"),
        (["--priority", "high"], "--priority: unknown priority 'high'"),
        (["--timeout", "0"], "--timeout: '0.0'; allowed: a number above 0"),
        (["--arrivals", "random"], "--arrivals: 'random'; allowed: constant, poisson, bursty"),
        (["--arrivals", "trace"], "--arrivals trace: which one? allowed: --trace FILE.csv"),
        (["--trace", "none.csv"], "none.csv: No such file"),
        (["--peak"], "--peak: allowed only with --arrivals trace"),
        (["--arrivals", "bursty", "--burst", "9"], "--burst: '9'; allowed: FACTOR:SECONDS:PERIOD"),
        (["--arrivals", "bursty", "--seconds", "5"], "--seconds: 5; allowed with these bursts"),
        (["--trace", "t.csv", "--window", "9:1"], "--window: '9:1'; allowed: BEGIN:END"),
        (["--url", "127.0.0.1:8000"], "--url: '127.0.0.1:8000'; allowed: scheme, host and port"),
        (["--url", "http://127.0.0.1:8000/v2"], "--url: "),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], text: str) -> None:
    rate = [] if "--rate" in options else ["--rate", "1"]
    done = subprocess.run(
        [*COMMAND, "m", *rate, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_nobody_at_an_address_is_told() -> None:
    done = subprocess.run(
        [*COMMAND, "m", "--rate", "1", "--url", "http://127.0.0.1:9"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert "http://127.0.0.1:9" in done.stderr
