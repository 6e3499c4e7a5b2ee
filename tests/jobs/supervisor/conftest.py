"""Folders for attempts, and an end to all that was started in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from treadle.programs.leftovers import end_marked

from .harness import Watched


@pytest.fixture
def home(folder: Path) -> Path:
    return folder


@pytest.fixture
def watched(home: Path) -> Iterator[Watched]:
    made = Watched(home / "1", uuid4().hex)
    yield made
    end_marked(made.mark)
