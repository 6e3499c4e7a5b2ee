"""How cells, modes and their knobs are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.bench.colocation.cells import SETS, choose_cells, known_cells, parse_cell
from treadle.bench.colocation.gate import Gate
from treadle.bench.colocation.modes import (
    BACKGROUND,
    CRITICAL,
    gate_environment,
    microseconds,
    mps_environment,
    parse_mode,
    turnstile_knobs,
)
from treadle.errors import ConfigError

GATE = Gate(library=Path("/lib/gate.so"), page=Path("/run/turnstile/gpu"))


def test_a_cell_is_written_as_it_is_read() -> None:
    for cell in known_cells():
        assert parse_cell(str(cell)) == cell


def test_knobs_are_part_of_the_name_in_one_order() -> None:
    cell = parse_cell("resnet20/trainer/gate-coop@linger=1ms,budget=100us")
    assert str(cell) == "resnet20/trainer/gate-coop@budget=100us,linger=1ms"
    assert turnstile_knobs(cell.mode) == {"budget": 1e-4, "linger": 1e-3}


def test_what_a_cell_is_compared_with_comes_before_it() -> None:
    assert list(map(str, choose_cells("resnet20/trainer/gate@budget=50us,duty=0.1"))) == [
        "resnet20/none/alone",
        "none/trainer/alone",
        "resnet20/trainer/gate@budget=50us,duty=0.1",
    ]
    assert len(choose_cells("resnet20/trainer/gate", baselines=False)) == 1


@pytest.mark.parametrize("name", SETS)
def test_every_set_can_be_chosen(name: str) -> None:
    cells = choose_cells(name)
    assert len(set(cells)) == len(cells)


def test_patterns_keep_the_order_of_importance() -> None:
    chosen = choose_cells("resnet20/*/gate-coop", baselines=False)
    assert [cell.background for cell in chosen] == [
        "trainer",
        "trainer-small",
        "trainer-compiled",
        "trainer-graphs",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "resnet20/trainer",
        "resnet21/trainer/gate",
        "resnet20/trainers/gate",
        "resnet20/trainer/gates",
        "resnet20/trainer/alone",
        "none/none/alone",
        "resnet20/trainer/gate-cost",
        "none/trainer/gate-coop",
        "resnet20/trainer/timeslice@budget=100us",
        "resnet20/trainer/gate-coop@budget=soon",
        "resnet20/trainer/gate-coop@threads=40",
        "resnet20/trainer/mps@threads=many",
        "nothing/*",
    ],
)
def test_what_cannot_be_measured_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        choose_cells(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("150", 150), ("100us", 100), ("1.5ms", 1500), ("2s", 2000000)]
)
def test_durations(text: str, expected: int) -> None:
    assert microseconds(text) == expected


def test_the_gate_keeps_what_was_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    environment = gate_environment(BACKGROUND, name="trainer", gate=GATE)
    assert environment == {
        "LD_PRELOAD": "/lib/gate.so:/lib/other.so",
        "TREADLE_TURNSTILE": "/run/turnstile/gpu",
        "TREADLE_CLASS": "background",
        "TREADLE_NAME": "trainer",
    }


def test_only_the_background_yields_under_mps() -> None:
    mode = parse_mode("mps-prio@threads=40")
    pipe = Path("/run/mps")
    assert mps_environment(mode, CRITICAL, pipe) == {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}
    assert mps_environment(mode, BACKGROUND, pipe) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
    }
