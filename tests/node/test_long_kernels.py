"""A kernel that runs for too long, through a node: shown, counted and acted upon."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treadle.cli.exits import Exit
from treadle.turnstile.page import PAGE_BYTES, SEATED, Page, new_page
from treadle.types import Priority

from .conftest import MakeHome, StartNode
from .nodes import wait_until
from .test_steering import F_OFD_SETLK, FAKES

GPU = "FAKE-0"


@contextmanager
def stuck(folder: Path, job: int, name: str) -> Iterator[None]:
    """A page at which a process of that job sits, and runs a kernel that does not end."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / GPU).write_bytes(new_page(GPU))
    with (folder / GPU).open("r+b") as opened:
        page = Page.from_buffer(mmap.mmap(opened.fileno(), PAGE_BYTES))
        seat = page.record[0]
        seat.state, seat.pid, seat.name = SEATED, os.getpid(), f"train#{job}".encode()
        seat.class_ = Priority.BACKGROUND
        page.members[Priority.BACKGROUND] = 1
        page.running_since_ns[0] = since = time.monotonic_ns() - 10 * 10**9
        (folder / f".{GPU}.0").write_text(f"{since} {name}\n")
        lock = struct.pack("hh4xqqi4x", fcntl.F_WRLCK, os.SEEK_SET, Page.record.offset, 1, 0)
        fcntl.fcntl(opened, F_OFD_SETLK, lock)
        yield


@pytest.mark.parametrize(
    ("action", "state"), [("report", "running"), ("pause", "paused"), ("stop", "failed")]
)
def test_a_long_kernel_is_shown_and_counted(
    start_node: StartNode, tmp_path: Path, action: str, state: str
) -> None:
    folder = tmp_path / "turnstiles"
    with stuck(folder, 1, "spin"):
        node = start_node("", environment=FAKES | {"TREADLE_TURNSTILE_DIR": str(folder)})
        wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
        options = ("--max-kernel-seconds", "5", "--on-long-kernel", action, "--memory", "1GiB")
        submitted = node.home.treadle("submit", *options, "--", "sleep", "1000")
        assert submitted.stdout == "job 1\n", submitted.stderr
        url = "/treadle/v1/jobs/1"
        wait_until(lambda: "spin, of process" in node.local.get(url).json()["reason"], "it is said")
        wait_until(lambda: node.local.get(url).json()["state"] == state, f"it is {state}")
        shown = node.home.treadle("show", "1").stdout
        assert f"spin, of process {os.getpid()}, has run for" in shown
        assert "allowed are 5 s; more urgent and waiting: nobody" in shown
        assert f"at most 5 s each, else {action}" in shown
        text = node.http.get("/metrics").text
        assert f'treadle_long_kernels_total{{action="{action}",gpu="{GPU}"}} 1.0' in text
        if action == "pause":
            assert node.home.treadle("resume", "1").returncode == 0
            wait_until(lambda: node.local.get(url).json()["state"] == "running", "it goes on")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-kernel-seconds", "1", "--gpus", "0"), "a job without GPUs has no kernels"),
        (("--on-long-kernel", "stop"), "on_long_kernel: needs max_kernel_seconds"),
        (("--max-kernel-seconds", "1", "--on-long-kernel", "kill"), "Invalid enum value 'kill'"),
    ],
)
def test_a_limit_that_is_none_is_refused(
    start_shared_node: StartNode, options: tuple[str, ...], message: str
) -> None:
    node = start_shared_node("", environment=FAKES)
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    done = node.home.treadle("submit", *options, "--", "true")
    assert done.returncode != Exit.OK
    assert message in done.stderr


def test_a_limit_below_what_can_be_told_is_refused(make_home: MakeHome) -> None:
    done = make_home().treadle("submit", "--max-kernel-seconds", "0.01", "--", "true")
    assert done.returncode == Exit.USAGE
