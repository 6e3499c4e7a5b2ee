"""Tasks say how far they have come, to whoever wants to know."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import treadle
from treadle import progress
from treadle.progress import VARIABLE, folder_of, prepare, read_all, read_one, report


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = prepare(tmp_path, os.getpid())
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_samples_add_up(file: Path, tmp_path: Path) -> None:
    treadle.report(samples=32)
    treadle.report(samples=0.5)
    found = read_all(tmp_path)[os.getpid()]
    assert (found.samples, found.reports) == (32.5, 2)


def test_children_of_a_task_report_for_it(file: Path, tmp_path: Path) -> None:
    treadle.report(samples=1)
    program = "import treadle; [treadle.report(samples=1) for _ in range(100)]"
    for child in [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]:
        assert child.wait(timeout=60) == 0
    assert read_all(tmp_path)[os.getpid()].samples == 301


def test_a_program_that_nobody_listens_to_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    treadle.report(samples=1)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no folder" / "file"))
    treadle.report(samples=1)


@pytest.mark.parametrize("samples", [-1, float("nan"), float("inf")])
def test_what_is_no_number_of_samples_is_refused(samples: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 and above"):
        treadle.report(samples=samples)


def test_what_the_dead_have_left_is_taken_away(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(timeout=60)
    file = prepare(tmp_path, dead.pid)
    file.write_bytes(b"x")
    (folder_of(tmp_path) / "notes").write_text("mine")
    assert read_all(tmp_path) == {}
    assert not file.exists()
    assert (folder_of(tmp_path) / "notes").exists()


def test_what_a_task_in_another_container_reports_is_left_to_it(file: Path, tmp_path: Path) -> None:
    treadle.report(samples=3)
    pid, _, namespace = file.name.partition("-")
    there = file.with_name(f"{2**22 + 1}-{int(namespace) + 1}")  # no process of ours has the number
    same = file.with_name(f"{pid}-{int(namespace) + 1}")
    for other in (there, same):
        other.write_bytes(file.read_bytes())
    assert list(read_all(tmp_path)) == [os.getpid()]
    assert there.exists()
    assert same.exists()


def test_a_file_that_is_none_is_not_read(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"x" * 32)
    assert read_all(tmp_path) == {}
    assert progress.read_all(tmp_path / "nowhere") == {}


def test_a_program_under_treadle_run_reports(tmp_path: Path) -> None:
    program = "import os, treadle; treadle.report(samples=7); print(os.getpid()); input()"
    with subprocess.Popen(
        [*(sys.executable, "-m", "treadle", "run", "--"), *(sys.executable, "-c", program)],
        env=os.environ | {"TREADLE_TURNSTILE_DIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as task:
        assert task.stdout is not None
        assert task.stdin is not None
        pid = int(task.stdout.readline())
        assert pid == task.pid
        assert read_all(tmp_path)[pid].samples == 7
        task.stdin.write("\n")


def test_a_loss_is_the_last_that_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(prepare(tmp_path, os.getpid())))
    report(samples=1)
    assert read_one(tmp_path, os.getpid()) == read_all(tmp_path)[os.getpid()]
    assert read_all(tmp_path)[os.getpid()].loss is None
    report(samples=1, loss=2.5)
    report(samples=1)
    found = read_one(tmp_path, os.getpid())
    assert found is not None
    assert (found.samples, found.loss) == (3.0, 2.5)
    report(samples=1, loss=float("nan"))
    assert read_all(tmp_path)[os.getpid()].loss == 2.5


def test_who_has_not_reported_has_no_progress(tmp_path: Path) -> None:
    assert read_one(tmp_path, os.getpid()) is None


def test_what_somebody_else_has_put_in_place_is_not_read(file: Path, tmp_path: Path) -> None:
    report(samples=1)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert read_one(tmp_path, os.getpid()) is None
    file.unlink()
    os.mkfifo(file)  # nobody writes to it: who waits for that, waits for ever
    assert read_one(tmp_path, os.getpid()) is None
    assert read_all(tmp_path) == {}


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_other_file_is_written_by_way_of_a_link(
    file: Path, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link(precious, file)
    report(samples=1)
    assert precious.read_text() == "precious"
