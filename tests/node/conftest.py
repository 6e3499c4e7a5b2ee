"""Fixtures that start nodes and always end them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from treadle.cli.main import main

from .grpc_clients import Stream
from .nodes import Home, RunningNode
from .shared import MakeMemory, Memory

MakeHome = Callable[..., Home]
StartNode = Callable[..., RunningNode]
MakeStream = Callable[[RunningNode], Stream]
RunHere = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def _homes() -> Iterator[MakeHome]:
    with contextlib.ExitStack() as stack:

        def make(toml: str = "", environment: Mapping[str, str] | None = None) -> Home:
            # Not pytest's own folders: a path to a Unix socket may have 107 bytes at most.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-"))
            return Home(Path(folder).resolve(), toml, environment)

        yield make


@contextlib.contextmanager
def _nodes() -> Iterator[StartNode]:
    with _homes() as make_home, contextlib.ExitStack() as stack:

        def start(
            toml: str,
            *options: str,
            environment: Mapping[str, str] | None = None,
            prepare: Callable[[Home], None] = lambda _: None,
            wait: bool = True,
        ) -> RunningNode:
            home = make_home(toml, environment)
            prepare(home)
            stack.callback(home.end_jobs)
            node = home.up(*options)
            stack.callback(node.close)
            if wait:
                node.wait_until_started()
            return node

        yield start


@pytest.fixture
def make_home() -> Iterator[MakeHome]:
    """Makes folders with a configuration file, without starting anything."""
    with _homes() as make:
        yield make


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for clients that wait for their answers at the same time."""
    with ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunHere:
    """Runs a command in this process: much faster than one of its own, for tests of many."""

    def run(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
        for variable in home.own_environment:
            monkeypatch.setenv(variable, home.own_environment[variable])
        monkeypatch.chdir(home.folder)
        monkeypatch.setattr(sys, "argv", ["treadle", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = int(ended.value.code or 0)
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


@pytest.fixture
def start_node() -> Iterator[StartNode]:
    """Starts nodes that end with the test."""
    with _nodes() as start:
        yield start


@pytest.fixture(scope="module")
def start_shared_node() -> Iterator[StartNode]:
    """Starts nodes that end with the module's last test."""
    with _nodes() as start:
        yield start


@pytest.fixture
def channels() -> Iterator[Callable[[str], Any]]:
    """Opens channels that are closed at the end."""
    opened: list[Any] = []

    def open_channel(address: str) -> Any:
        opened.append(grpc.insecure_channel(address))
        return opened[-1]

    yield open_channel
    for channel in opened:
        channel.close()


@pytest.fixture
def memory() -> Iterator[MakeMemory]:
    with ExitStack() as stack:

        def make(nbytes: int) -> Memory:
            made = Memory(nbytes)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def streams() -> Iterator[MakeStream]:
    channels, opened = [], []

    def open_stream(node: RunningNode) -> Stream:
        channels.append(grpc.insecure_channel(node.grpc))
        opened.append(Stream(GRPCInferenceServiceStub(channels[-1])))
        return opened[-1]

    yield open_stream
    for stream in opened:
        stream.end()
        stream.call.cancel()
    for channel in channels:
        channel.close()
