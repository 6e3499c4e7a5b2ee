from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.bench.cpu import CpuMeter, pids_of


class Proc:
    """A ``/proc`` with one process. Ticks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "7").mkdir()

    def show(self, *, node: int, busy: int, idle: int) -> None:
        text = f"7 (a (strange) name) S 1 7 7 0 -1 0 0 0 0 0 {node} 1 0 0 20 0"
        (self.folder / "7" / "stat").write_text(text)
        (self.folder / "stat").write_text(f"cpu  {busy} 2 3 {idle} 5 6 7 1000 0 0\ncpu0 1 2\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_work_is_told_apart_by_who_does_it(proc: Proc) -> None:
    proc.show(node=100, busy=1000, idle=0)
    meter = CpuMeter([7], proc.folder)
    second = os.sysconf("SC_CLK_TCK")
    proc.show(node=100 + 1000 * second, busy=1000 + 3000 * second, idle=10**9)
    use = meter.use()
    assert use.node_cores > 0
    assert use.other_cores == pytest.approx(2 * use.node_cores, rel=0.01)


def test_a_process_that_has_ended_counts_no_more(proc: Proc) -> None:
    proc.show(node=0, busy=0, idle=0)
    use = CpuMeter([8], proc.folder).use()
    assert (use.node_cores, use.other_cores) == (0, 0)


def test_a_nodes_processes_are_its_own_and_its_workers() -> None:
    assert pids_of({"pid": 1, "models": [{"pids": [2, 3]}, {"pids": []}]}) == [1, 2, 3]
