"""A stand-in for the control program, and a folder for a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.devices.mps.standin import StandIn


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[StandIn]:
    one = StandIn(tmp_path / "standin")
    yield one
    one.bury()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not a test's usual folder: its path is too long for a socket."""
    with TemporaryDirectory(prefix="mps-") as place:
        yield Path(place) / "gpu0"
