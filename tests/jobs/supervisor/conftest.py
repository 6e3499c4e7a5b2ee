"""Folders for attempts, on disks of any size, and an end to all that was started in them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from treadle.programs.leftovers import end_marked

from .harness import Watched

MakeDisk = Callable[[str], Path]


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own folders: a path to a Unix socket may have 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        yield Path(folder)


@pytest.fixture
def watched(home: Path) -> Iterator[Watched]:
    made = Watched(home / "1", uuid4().hex)
    yield made
    end_marked(made.mark)
    made.attempt.let_go()


@pytest.fixture
def make_disk(home: Path) -> Iterator[MakeDisk]:
    """Makes small disks, where the system lets us."""
    made: list[Path] = []

    def make(options: str) -> Path:
        folder = home / f"disk{len(made)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        if (
            os.geteuid() != 0
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            pytest.skip("needs the right to mount")
        made.append(folder)
        return folder

    yield make
    for folder in made:
        subprocess.run(["umount", "-l", str(folder)], check=True)
