"""The results file survives whatever ends a run, and results add up over runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.bench.colocation.cells import parse_cell
from treadle.bench.colocation.report import make_report
from treadle.bench.colocation.store import Failure, Store
from treadle.errors import ConfigError

from .synthetic import calibrate, measure

CELL = "resnet20/none/alone"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "results.jsonl"


def test_slices_add_up_and_are_read_back(file: Path) -> None:
    calibrate(Store(file), "resnet20")
    for _ in range(3):
        measure(Store(file), CELL, blocks=5)
    store = Store(file)
    cell = parse_cell(CELL)
    assert [part.first for part in store.slices(cell)] == [0, 5, 10]
    assert store.blocks(cell) == 15
    assert store.requests(cell) == make_report(store).rows[0].requests
    assert list(Store(file)) == list(store)


def test_a_line_cut_off_costs_that_line_only(file: Path) -> None:
    store = Store(file)
    measure(store, CELL, blocks=2)
    measure(store, CELL, blocks=2)
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    resumed = Store(file)
    assert resumed.blocks(parse_cell(CELL)) == 2
    measure(resumed, CELL, blocks=2)
    assert Store(file).blocks(parse_cell(CELL)) == 4


def test_another_file_is_refused(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("name = 1\nname = 2\nname = 3\n")
    with pytest.raises(ConfigError, match=r"results\.jsonl:1"):
        Store(file)


def test_the_first_calibration_stands(file: Path) -> None:
    store = Store(file)
    assert store.calibration("resnet20") is None
    calibrate(store, "resnet20")
    assert store.calibration("resnet20") is not None
    assert store.calibration("resnet45") is None


def test_a_failure_is_forgotten_once_the_cell_succeeds(file: Path) -> None:
    store = Store(file)
    store.append(Failure(cell=CELL, reason="no luck"))
    assert store.failure(parse_cell(CELL)) == "no luck"
    measure(store, CELL, blocks=1)
    assert store.failure(parse_cell(CELL)) is None
