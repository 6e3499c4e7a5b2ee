"""Control groups of jobs, where there are any."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from treadle.programs.limits import HostLimits
from treadle.types import TaskState

from .conftest import MakeQueue
from .supervisor.harness import Watched


@pytest.fixture
def groups() -> Path:
    """Where the machine has its control groups."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for words in mounts:
        if words[2] == "cgroup2":
            return Path(words[1])
    pytest.skip("there are no control groups of version 2")


@pytest.fixture
def limits(groups: Path) -> Iterator[HostLimits]:
    found = HostLimits(groups)
    if found.reason:
        pytest.skip(found.reason)
    yield found
    for folder in groups.rglob("treadle.slice"):
        with suppress(OSError):  # a node of this machine may have it
            folder.rmdir()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_control_group_goes_with_its_attempt(
    make_queue: MakeQueue, groups: Path, limits: HostLimits, *, killed: bool
) -> None:
    queue = await make_queue(limits=limits)
    number = await queue.one("cat /proc/self/cgroup; sleep 1000")
    job = await queue.comes_to(number, TaskState.RUNNING)
    assert job.bounds.startswith("control group:")
    watched = Watched(queue.folder / "1" / "1")
    await watched.has_written("treadle.slice")
    (line,) = [line for line in watched.output.splitlines() if line.startswith("0::")]
    assert line.endswith(f"/treadle.slice/job-{queue.starter.mark(job)}")
    group = groups / line[len("0::/") :]
    assert group.is_dir()
    pid = await watched.supervisor()
    os.kill(pid, signal.SIGKILL if killed else signal.SIGTERM)
    assert (await queue.over(number)).state is TaskState.LOST
    assert not group.exists()
