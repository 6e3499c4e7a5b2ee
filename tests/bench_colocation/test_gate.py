"""Cells under the real gate, as far as they go without a GPU: seats, marks, knobs, counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.bench.colocation.cells import parse_cell
from treadle.bench.colocation.command import run
from treadle.bench.colocation.gate import Counters, find_library, open_gate, set_knobs
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.store import Store
from treadle.bench.colocation.workloads import Scale
from treadle.errors import TreadleError
from treadle.turnstile import KNOBS, Turnstile
from treadle.turnstile.build import BuildError, build


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gate") / "libtreadle_gate.so"
    try:
        build(file)
    except BuildError as error:
        pytest.skip(str(error))
    return file


def knobs(page: Path) -> dict[str, int]:
    with Turnstile.open(page.parent, page.name) as turnstile:
        return dict(turnstile.snapshot().knobs)


def test_knobs_that_are_not_named_go_back_to_what_is_usual(library: Path, tmp_path: Path) -> None:
    page = open_gate(library, tmp_path, "gpu").page
    set_knobs(page, {"budget": 50e-6, "duty": 0.02})
    assert (knobs(page)["budget_ns"], knobs(page)["duty_ppm"]) == (50_000, 20_000)
    set_knobs(page, {"linger": 1e-3})
    usual = {name: knob.usual for name, knob in KNOBS.items()}
    assert knobs(page) == {**usual, "linger_ns": 1_000_000}
    with pytest.raises(TreadleError, match="budget_ns"):
        set_knobs(page, {"budget": 1e9})
    assert Counters(page).read() == []


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    with pytest.raises(TreadleError, match="no launch gate at"):
        find_library(tmp_path / "none.so")


@pytest.fixture
def measured(library: Path, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    def measure(cell: str) -> dict[str, Any]:
        pytest.importorskip("torch")
        settings = Settings(
            cells=cell,
            baselines=False,
            out=tmp_path / "results.jsonl",
            seconds=1,
            training_seconds=1,
            device="cpu",
            scale=Scale.TINY,
            gate_library=library,
        )
        assert run(settings) == 0
        (part,) = Store(settings.out).slices(parse_cell(cell))
        return part.facts

    return measure


def test_a_cooperative_server_marks_itself(measured: Callable[[str], dict[str, Any]]) -> None:
    facts = measured("resnet20/trainer/gate-coop@budget=50us")
    (server,) = [m for m in facts["gate"]["members"] if m["name"] == "resnet20"]
    assert server["marks"] > 0
    assert server["marked_seconds"] > 0


@pytest.mark.parametrize("cell", ["none/trainer/gate-cost", "resnet20/trainer/gate"])
def test_other_cells_under_the_gate_run(
    cell: str, measured: Callable[[str], dict[str, Any]]
) -> None:
    assert measured(cell)["gate"] == {"members": []}
