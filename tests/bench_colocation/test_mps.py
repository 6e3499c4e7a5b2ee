"""An MPS daemon of our own, played by a script: it is bounded in time and taken down."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from treadle.bench.colocation.mps import MpsDaemon
from treadle.errors import TreadleError

DAEMON = """#!/bin/sh
if [ "$1" = -d ]; then
    (exec sleep 600) >/dev/null 2>&1 &
    echo $! > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
    exit 0
fi
read said
case "$said" in
    quit) QUIT ;;
    get_server_list) echo none ;;
    *) echo unknown; exit 1 ;;
esac
"""


def control(tmp_path: Path, quits: str) -> str:
    file = tmp_path / "control"
    file.write_text(DAEMON.replace("QUIT", quits))
    file.chmod(0o755)
    return str(file)


def test_it_listens_and_quits(tmp_path: Path) -> None:
    quits = 'kill $(cat "$CUDA_MPS_PIPE_DIRECTORY"/*.pid)'
    with MpsDaemon(control(tmp_path, quits)) as daemon:
        assert daemon.tell("get_server_list") == "none"
        with pytest.raises(TreadleError, match="unknown"):
            daemon.tell("dance")
        pid = int(next(daemon.pipe_directory.glob("*.pid")).read_text())
        home = daemon.pipe_directory.parent
    assert not home.exists()
    assert not alive(pid)


@pytest.mark.parametrize("quits", ["sleep 600", "true"])
def test_one_that_does_not_quit_is_killed(tmp_path: Path, quits: str) -> None:
    daemon = MpsDaemon(control(tmp_path, quits), timeout_seconds=0.3)
    pid = int(next(daemon.pipe_directory.glob("*.pid")).read_text())
    began = time.monotonic()
    daemon.close()
    assert time.monotonic() - began < 30
    end = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_the_program_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    if any(Path(place).exists() for place in ("/usr/bin/nvidia-cuda-mps-control",)):
        pytest.skip("this machine has MPS")
    with pytest.raises(TreadleError, match="MPS: no nvidia-cuda-mps-control"):
        MpsDaemon()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
