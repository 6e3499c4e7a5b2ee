"""Fixtures that start nodes and always end them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from .nodes import Home, RunningNode

MakeHome = Callable[..., Home]
StartNode = Callable[..., RunningNode]


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
            wait: bool = True,
        ) -> RunningNode:
            node = make_home(toml, environment).up(*options)
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
def start_node() -> Iterator[StartNode]:
    """Starts nodes that end with the test."""
    with _nodes() as start:
        yield start


@pytest.fixture(scope="module")
def start_shared_node() -> Iterator[StartNode]:
    """Starts nodes that end with the module's last test."""
    with _nodes() as start:
        yield start
