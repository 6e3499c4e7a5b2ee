"""Whole runs: with tiny models on the CPU, and with roles that go wrong."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.bench.colocation.arrivals import count_arrivals
from treadle.bench.colocation.cells import parse_cell
from treadle.bench.colocation.command import run
from treadle.bench.colocation.settings import Settings, Timeouts
from treadle.bench.colocation.store import Store
from treadle.bench.colocation.workloads import Scale

BROKEN = Path(__file__).parent / "broken_role.py"
PAIR = "resnet20/trainer/timeslice"

needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs torch")


def settings(tmp_path: Path, cells: str = PAIR) -> Settings:
    return Settings(
        cells=cells,
        out=tmp_path / "results.jsonl",
        seconds=1,
        training_seconds=1,
        as_json=True,
        device="cpu",
        scale=Scale.TINY,
    )


def broken(how: str, tmp_path: Path, cells: str = "none/trainer/alone") -> Settings:
    timeouts = Timeouts(load=60, warm=1, steady=1, drain=0.1, answer=1)
    if how == "hangs loading":
        timeouts = replace(timeouts, load=1)
    command = (sys.executable, str(BROKEN), how)
    return replace(settings(tmp_path, cells), role_command=command, timeouts=timeouts)


@needs_torch
def test_a_run_is_taken_up_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = settings(tmp_path)
    assert run(first) == 0
    store = Store(first.out)
    cell = parse_cell(PAIR)
    assert store.blocks(cell) == 1
    calibration = store.calibration("resnet20")
    assert calibration is not None
    assert store.requests(cell) == count_arrivals(calibration.rate, first.seed, 0, 1)

    assert run(replace(first, min_requests=store.requests(cell) + 1)) == 0
    again = Store(first.out)
    assert again.blocks(cell) == 2
    assert again.calibration("resnet20") == calibration
    assert again.requests(cell) == count_arrivals(calibration.rate, first.seed, 0, 2)
    alone = parse_cell("resnet20/none/alone")
    for one, other in zip(again.slices(cell), again.slices(alone), strict=True):
        assert (one.first, one.rate, one.arrived) == (other.first, other.rate, other.arrived)

    capsys.readouterr()
    assert run(replace(first, min_requests=1)) == 0  # nothing is left to do
    printed = capsys.readouterr()
    assert "0 of 3 cells" in printed.err
    assert len(list(Store(first.out))) == len(list(again))
    rows = {row["cell"]: row for row in json.loads(printed.out)["rows"]}
    assert rows[PAIR]["p99_over_native"]["value"] > 0
    assert rows[PAIR]["steps_per_second"] > 0
    assert rows[PAIR]["kept_of_left"]["value"] > 0


@needs_torch
@pytest.mark.parametrize(
    "cell",
    [
        "encoder30/trainer-graphs/timeslice",
        "decoder30/trainer-small/timeslice",
        "resnet45/trainer-compiled/timeslice",
    ],
)
def test_other_workloads_run(cell: str, tmp_path: Path) -> None:
    chosen = replace(settings(tmp_path, cell), baselines=False, fresh=True)
    assert run(chosen) == 0
    (part,) = Store(chosen.out).slices(parse_cell(cell))
    assert part.arrived > 0
    assert part.latencies
    assert part.steps


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies loading", "died before 'loaded'"),
        ("dies warming", "died before 'ready'"),
        ("dies starting", "died before 'running'"),
        ("dies measured", "died while it was measured"),
        ("dies stopping", "died before 'result'"),
        ("hangs loading", "said no 'loaded'"),
        ("hangs warming", "said no 'ready'"),
        ("hangs starting", "said no 'running'"),
        ("hangs measured", "said no 'result'"),
    ],
)
def test_a_role_that_goes_wrong_is_a_failed_cell(
    how: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = broken(how, tmp_path)
    assert run(chosen) == 1
    failure = Store(chosen.out).failure(parse_cell("none/trainer/alone"))
    assert failure is not None
    assert reason in failure
    if how.startswith("dies"):
        assert failure.endswith("out of luck")
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert reason in row["note"]


def test_other_cells_go_on_after_a_failure(tmp_path: Path) -> None:
    chosen = broken("dies measured", tmp_path, PAIR)
    assert run(chosen) == 1
    store = Store(chosen.out)
    assert store.blocks(parse_cell("resnet20/none/alone")) == 1
    assert store.failure(parse_cell("none/trainer/alone")) is not None
    assert store.failure(parse_cell(PAIR)) is not None


def test_what_the_machine_lacks_is_a_failed_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    cells = "none/trainer/gate-open,resnet20/trainer/mps"
    chosen = replace(
        broken("never", tmp_path, cells), baselines=False, gate_library=tmp_path / "no.so"
    )
    assert run(chosen) == 1
    store = Store(chosen.out)
    assert "no launch gate at" in (store.failure(parse_cell("none/trainer/gate-open")) or "")
    assert "MPS: no" in (store.failure(parse_cell("resnet20/trainer/mps")) or "")


def test_no_cell_is_begun_that_would_end_too_late(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = replace(broken("never", tmp_path, PAIR), limit_seconds=1.0)
    assert run(chosen) == 0
    assert capsys.readouterr().err.count("left out") == 3
    assert not chosen.out.exists()
