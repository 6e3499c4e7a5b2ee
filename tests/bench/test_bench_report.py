from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from treadle.bench.report import print_report
from treadle.bench.results import (
    Calibration,
    Comparison,
    CpuUse,
    Figures,
    Machine,
    Results,
    Run,
    SendLag,
    save,
    to_json,
)
from treadle.errors import TreadleError


def figures(priority: str | None, objective: float | None, p99: float) -> Figures:
    return Figures(
        priority=priority,
        p99_objective_seconds=objective,
        offered=100,
        offered_per_second=10.0,
        completed=97,
        completed_per_second=9.6,
        p50_seconds=0.002,
        p95_seconds=0.03,
        p99_seconds=p99,
        objective_met_fraction=None if objective is None else 0.955,
        rejected=2,
        failed=1,
    )


def run(policy: str, p99: float) -> Run:
    return Run(
        policy=policy,
        models={
            "urgent": figures("critical", 0.05, p99),
            "patient": figures("background", None, 0.7),
        },
        total=figures(None, None, 0.5),
        send_lag=SendLag(p50_seconds=0.0001, p99_seconds=0.0061, max_seconds=0.008),
        cpu=CpuUse(generator_cores=0.07, node_cores=1.5, other_cores=0.02),
        warnings=("the generator itself was late",),
    )


@pytest.fixture
def results() -> Results:
    return Results(
        date="2026-01-02T03:04:05+00:00",
        command="treadle bench serve",
        machine=Machine(cpu="A CPU", cores=2, memory_bytes=1, system="Linux", load_average=0.1),
        versions={"treadle": "0.1.0", "python": "3.11.7"},
        seed=42,
        seconds=30.0,
        load=0.9,
        rates={"urgent": 8.0, "patient": 2.0},
        calibration=Calibration(
            policy="fifo",
            parts={"urgent": 1.0, "patient": 1.0},
            service_seconds={"urgent": 0.0038, "patient": 0.107},
            proportions={"urgent": 0.8, "patient": 0.2},
            clients=34,
            capacity_requests_per_second=11.1,
            warnings=("others were busy",),
        ),
        runs=(run("fifo", 1.2), run("priority", 0.04)),
        comparisons=(
            Comparison(
                first="fifo",
                second="priority",
                p99_ratio={"urgent": 30.0, "patient": None},
                throughput_ratio=1.02,
            ),
        ),
    )


@pytest.fixture
def printed(results: Results) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    print_report(console, results)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_row_shows_a_model_in_milliseconds(printed: list[str]) -> None:
    assert "urgent 10.0 9.60 2.00 30.0 1200 50 95.5% 2 1" in printed


def test_a_model_without_an_objective_shows_none(printed: list[str]) -> None:
    assert "patient 10.0 9.60 2.00 30.0 700 - - 2 1" in printed


def test_every_policy_has_a_table_with_a_total(printed: list[str]) -> None:
    headings = "OFFER/s DONE/s P50 ms P95 ms P99 ms GOAL MET REJECTED FAILED"
    assert [line for line in printed if line.endswith("FAILED")] == [
        f"FIFO {headings}",
        f"PRIORITY {headings}",
    ]
    assert len([line for line in printed if line.startswith("total ")]) == 2


def test_the_calibration_is_shown(printed: list[str]) -> None:
    assert "urgent 3.80 50% 8.00" in printed
    assert "warning: others were busy" in printed
    assert any("capacity: 11.1 requests/s" in line and "90% of it" in line for line in printed)


def test_the_generators_own_part_is_shown(printed: list[str]) -> None:
    assert "generator late by 6.10 ms at P99, 8.00 at most; " in "\n".join(printed)
    assert "cores used: node 1.50, generator 0.07, others 0.02" in " ".join(printed)
    assert "warning: the generator itself was late" in printed


def test_two_policies_are_compared(printed: list[str]) -> None:
    assert "urgent 30.00x" in printed
    assert "patient -" in printed
    assert "throughput, priority over fifo 1.02x" in printed


def test_the_machine_is_named(printed: list[str]) -> None:
    assert any("A CPU, 2 cores" in line and "seed 42" in line for line in printed)


def test_json_reads_back_as_the_same_results(results: Results) -> None:
    assert msgspec.json.decode(to_json(results), type=Results) == results


def test_json_has_the_documented_keys(results: Results) -> None:
    document = json.loads(to_json(results))
    assert list(document) == [
        "format", "date", "command", "machine", "versions", "seed", "seconds", "load", "rates",
        "calibration", "runs", "comparisons",
    ]  # fmt: skip
    assert list(document["runs"][0]) == [
        "policy", "models", "total", "send_lag", "cpu", "warnings",
    ]  # fmt: skip
    assert list(document["runs"][0]["models"]["urgent"]) == [
        "priority", "p99_objective_seconds", "offered", "offered_per_second", "completed",
        "completed_per_second", "p50_seconds", "p95_seconds", "p99_seconds",
        "objective_met_fraction", "rejected", "failed",
    ]  # fmt: skip
    assert document["runs"][0]["models"]["patient"]["objective_met_fraction"] is None


def test_saving_makes_the_folder(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    save(results, path)
    assert path.read_bytes() == to_json(results)


def test_a_place_that_cannot_be_written_is_named(results: Results, tmp_path: Path) -> None:
    with pytest.raises(TreadleError, match="cannot write"):
        save(results, tmp_path)
