"""What the controller is for, in virtual time: objectives kept, training kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from treadle.bench.control.load import SITUATIONS
from treadle.bench.control.report import Report, markdown, rows
from treadle.bench.control.run import (
    BOUNDS,
    MODES,
    SAMPLED,
    SCRAPED,
    Result,
    level_of,
    simulate,
    window,
)
from treadle.bench.results import to_json
from treadle.errors import TreadleError
from treadle.types import LatencyKind


def short(name: str, mode: str, seconds: float = 60.0) -> Result:
    situation = dataclasses.replace(SITUATIONS[name], seconds=seconds)
    if situation.burst is not None and situation.burst[1] > seconds:
        situation = dataclasses.replace(situation, burst=(seconds / 3, seconds / 2))
    return simulate(name, situation, mode, seed=1)


def test_the_same_seed_gives_the_same_figures() -> None:
    assert short("steady", SAMPLED, 10) == short("steady", SAMPLED, 10)


@pytest.mark.parametrize("mode", [SAMPLED, SCRAPED])
def test_where_the_usual_knobs_miss_the_controller_keeps_the_objective(mode: str) -> None:
    usual, steered = short("steady", "fixed: usual"), short("steady", mode)
    protective = short("steady", "fixed: protective")
    assert usual.late_per_thousand > 10
    assert steered.late_per_thousand < 10
    assert steered.p99_seconds < steered.objective_seconds
    assert steered.kept_fraction > protective.kept_fraction


def test_where_the_protective_knobs_waste_the_controller_gives_more() -> None:
    protective, steered = short("easy", "fixed: protective"), short("easy", SAMPLED)
    assert steered.late_per_thousand == 0
    assert steered.kept_fraction > protective.kept_fraction + 0.05


@pytest.mark.parametrize("mode", [SAMPLED, SCRAPED])
def test_a_burst_harms_less_than_with_the_usual_knobs(mode: str) -> None:
    usual, steered = short("burst", "fixed: usual", 70), short("burst", mode, 70)
    assert steered.late_per_thousand < usual.late_per_thousand


@pytest.mark.parametrize("mode", [SAMPLED, SCRAPED])
def test_the_impossible_is_called_so_and_training_goes_on(mode: str) -> None:
    result = short("impossible", mode, 30)
    assert result.told[0][0] < 20
    assert result.told[0][1].startswith("cannot be met: alone it takes")
    assert result.kept_fraction > 0.5


def test_a_mode_that_is_none_says_which_there_are() -> None:
    assert level_of("fixed: 0.25") == 0.25
    for mode in ("fixed: 2", "fixed: x", "steered", "fixed: nan"):
        with pytest.raises(TreadleError, match="controller, scraped"):
            level_of(mode)


def test_the_histogram_tells_what_its_bounds_can() -> None:
    latencies = np.array([0.0005, 0.009, 0.011, 0.02, 2.0])
    exact = window(latencies, 0.012, LatencyKind.SAMPLES, 1.0, 1.0)
    told = window(latencies, 0.012, LatencyKind.HISTOGRAM, 1.0, 1.0)
    assert exact.over == (2, 2)
    assert told.over == (2, 3)
    assert window(latencies, BOUNDS[4], LatencyKind.HISTOGRAM, 1.0, 1.0).over == (3, 3)


def test_the_report_has_a_row_for_each_situation_and_mode() -> None:
    results = tuple(short(name, mode, 5) for name in ("steady", "burst") for mode in MODES)
    assert [row[:2] for row in rows(results)] == [(one.situation, one.mode) for one in results]
    page = markdown(results).splitlines()
    assert len({line.count("|") for line in page}) == 1
    report = Report(date="", command="", versions={}, situations={}, results=results)
    assert b'"simulated": true' in to_json(report)
