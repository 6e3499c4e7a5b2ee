"""Kernels that run for long on a real GPU: seen at the gate, their processes locked and let go."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gpu.conftest import PROGRAMS, Floor, eventually, member, members

import treadle
from treadle.devices.checkpoint import CheckpointError, ProcessLocks
from treadle.errors import TreadleError
from treadle.types import TaskState

pytestmark = pytest.mark.gpu

NODE_NEEDS = ("aiohttp", "msgspec", "prometheus_client", "pynvml", "starlette", "uvicorn")


def test_a_kernel_that_spins_is_seen_with_its_name_until_it_ends(floor: Floor) -> None:
    program = floor.run("spinning", "3", TREADLE_WATCH="1")
    program.expect("counted")
    with floor.page() as page:
        names: set[str | None] = set()

        def seen() -> bool:
            names.update(page.running_name(one) for one in members(page, "spinning"))
            return any("spin" in name for name in names if name)

        eventually(seen, f"the kernel is seen; names so far: {names}")
        program.expect("spun")
        eventually(lambda: member(page, "spinning").running_since_ns is None, "it has ended")


def test_a_locked_process_launches_nothing_until_it_is_unlocked(floor: Floor) -> None:
    program = floor.run("spinning", "0.1")
    program.expect("spun")
    locks = ProcessLocks()
    try:
        locks.lock(program.pid)
    except CheckpointError as error:
        pytest.skip(f"process checkpoint does not work here: {error}")
    with floor.page() as page:
        launches = member(page, "spinning").launches
        locks.lock(program.pid)  # it is so already
        # One may have come as far as the gate, and waits in the driver.
        assert member(page, "spinning").launches <= launches + 1
        locks.unlock(program.pid)
        eventually(lambda: member(page, "spinning").launches > launches + 10, "it goes on")


@pytest.fixture
def node(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A node of the test's own, which this process asks."""
    if missing := [name for name in NODE_NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"a node needs {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        file = Path(folder) / "treadle.toml"
        file.write_text("[http]\nport = 0\n")
        places = {
            "TREADLE_RUNTIME_DIR": f"{folder}/run",
            "TREADLE_STATE_DIR": f"{folder}/state",
        }
        for name, text in places.items():
            monkeypatch.setenv(name, text)
        up = floor.start([sys.executable, "-m", "treadle", "up", str(file)], **places)

        def answers() -> bool:
            try:
                treadle.jobs()
            except (ConnectionError, TreadleError):
                return False
            return True

        eventually(answers, "the node takes jobs")
        yield
        for job in treadle.jobs():
            job.cancel().wait()
        up.clear_away()


@pytest.mark.usefixtures("node")
def test_a_job_with_a_kernel_that_spins_is_locked_and_goes_on_when_resumed() -> None:
    job = treadle.submit(
        [sys.executable, str(PROGRAMS / "spinning.py"), "2.5"],
        memory="4GiB",
        max_kernel_seconds=1,
    )
    eventually(lambda: job.refresh().state is TaskState.PAUSED, "it is paused")
    eventually(lambda: "being locked" not in job.refresh().reason, "how is said")
    reason = job.refresh().reason
    assert "spin" in reason
    assert "allowed are 1 s; more urgent and waiting: nobody" in reason
    assert "locked by process checkpoint" in reason
    counted = job.output().count("counted")
    assert counted == job.output().count("counted") == 3
    job.resume()
    eventually(lambda: job.refresh().state is TaskState.RUNNING, "it goes on")
    eventually(lambda: job.output().count("counted") > counted + 10, "it counts on")
    assert "spun" in job.output()
