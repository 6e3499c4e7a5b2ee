"""Processes locked through the driver, each call by a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.turnstile.harness import Built

from treadle.devices.checkpoint import CheckpointError, ProcessLocks

PID = 4242


@pytest.fixture
def locked(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """There while the stand-in has the process locked."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(built.folder))
    monkeypatch.setenv("STANDIN_CHECKPOINT", str(tmp_path))
    return tmp_path / str(PID)


def test_a_process_is_locked_and_let_go(locked: Path) -> None:
    locks = ProcessLocks()
    for _ in range(2):  # what is so already is no error
        locks.lock(PID)
        assert locked.exists()
    for _ in range(2):
        locks.unlock(PID)
        assert not locked.exists()


def test_an_evicted_process_is_left_alone(locked: Path) -> None:
    locked.write_text("2")
    ProcessLocks().unlock(PID)
    assert locked.read_text() == "2"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("600", "its work in flight has not ended in 2 s"),
        ("801", r"cuCheckpointProcessLock: error 801 \(CUDA_ERROR_NOT_SUPPORTED\)"),
        ("1", "cuCheckpointProcessLock: error 1"),
    ],
)
def test_a_driver_that_refuses_says_why(
    locked: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    monkeypatch.setenv("STANDIN_CHECKPOINT_FAILS", code)
    with pytest.raises(CheckpointError, match=reason):
        ProcessLocks().lock(PID)
    assert not locked.exists()


def test_a_driver_that_hangs_is_left_after_a_while(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_CHECKPOINT_FAILS", "hang")
    monkeypatch.setattr("treadle.devices.checkpoint._MOST_SECONDS", 1.0)
    with pytest.raises(CheckpointError, match="the driver has not answered for 1 s"):
        ProcessLocks().lock(PID)


def test_a_library_that_is_no_driver_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcuda.so.1").write_text("nonsense")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(CheckpointError, match="not here"):
        ProcessLocks().lock(PID)
