from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle.bench.colocation.codec import unpack
from treadle.bench.mix.outcome import (
    Floats,
    Run,
    Sample,
    ServiceFigures,
    add_run,
    power_joules,
    read_arrays,
    read_document,
    service_figures,
    settled_seconds,
    trainer_figures,
    write_arrays,
)
from treadle.bench.results import Machine
from treadle.errors import TreadleError

MACHINE = Machine(cpu=None, cores=1, memory_bytes=1, system="", load_average=0.0)


def figures(due: Floats, latencies: Floats, seconds: int = 4) -> ServiceFigures:
    arrays = {"due": due, "latencies": latencies, "service": np.array([2e-3, 1e-3])}
    return service_figures("one", "resnet", 10.0, ["1:2:5"], 0.01, seconds, arrays)


def a_run(mode: str) -> Run:
    return Run(
        scenario="control",
        mode=mode,
        date="",
        command="",
        machine=MACHINE,
        versions={},
        device="cpu",
        scale="tiny",
        seed=1,
        seconds=1,
        cooperative=False,
    )


def test_what_took_longer_than_the_objective_is_late_in_the_second_in_which_it_was_due() -> None:
    due, latencies = np.arange(400) / 100, np.full(400, 0.005)
    latencies[100:110] = 0.02
    found = figures(due, latencies)
    assert (found.offered, found.answered, found.late, found.met) == (400, 400, 10, False)
    assert found.offered_by_second == [100, 100, 100, 100]
    assert found.late_by_second == [0, 10, 0, 0]
    assert found.last_bad_second == 1
    assert found.p99_seconds == 0.02
    assert unpack(found.latencies) == pytest.approx(latencies)


def test_one_late_request_in_a_hundred_is_within_the_objective() -> None:
    latencies = np.full(100, 0.005)
    latencies[50] = 1.0
    found = figures(np.linspace(0, 3.9, 100), latencies)
    assert found.met
    assert found.p99_seconds == 0.005
    assert found.last_bad_second is None


def test_requests_that_were_not_answered_are_late_and_have_no_p99() -> None:
    found = figures(np.arange(400) / 100, np.full(390, 0.005))
    assert (found.answered, found.late, found.p99_seconds) == (390, 10, None)
    assert found.p50_seconds == 0.005
    assert found.last_bad_second == 3


def test_a_service_of_which_nobody_wanted_anything_has_met_its_objective() -> None:
    found = figures(np.empty(0), np.empty(0))
    assert found.met
    assert found.p99_seconds is None
    assert found.offered_by_second == [0, 0, 0, 0]


def test_a_trainers_speed_is_that_of_whole_steps_while_the_load_lasted() -> None:
    finished: Floats = np.linspace(95.0, 109.5, 30)
    found = trainer_figures(
        "trainer", 100.0, 5, {"finished": finished, "samples": np.array([64.0])}
    )
    assert found.samples_per_second == pytest.approx(128.0)
    assert found.steps == 10
    assert found.longest_pause_seconds == pytest.approx(0.5)


@pytest.mark.parametrize("finished", [[], [1.0], [101.0]])
def test_a_trainer_without_two_steps_has_no_speed(finished: list[float]) -> None:
    arrays = {"finished": np.array(finished), "samples": np.array([64.0])}
    found = trainer_figures("trainer", 100.0, 5, arrays)
    assert found.samples_per_second == 0.0
    assert found.longest_pause_seconds is None


@pytest.mark.parametrize(
    ("levels", "settled"),
    [
        ([], None),
        ([None, None], None),
        ([0.5, 0.5, 0.5], 0.0),
        ([0.5, 0.55, 0.6, 0.6], 2.0),
        ([0.5, 0.25, 0.25, 0.3], 3.0),
    ],
)
def test_a_level_has_settled_when_it_is_first_seen_as_it_stays(
    levels: list[float | None], settled: float | None
) -> None:
    samples = [Sample(at=float(at), level=level) for at, level in enumerate(levels)]
    assert settled_seconds(samples) == settled


def test_energy_by_power_is_its_integral() -> None:
    samples = [Sample(at=float(at), power_watts=100.0 + at) for at in range(11)]
    assert power_joules(samples) == pytest.approx(1050.0)
    assert power_joules(samples[:1]) is None
    assert power_joules([Sample(at=0.0), Sample(at=1.0)]) is None


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", x=np.array([1.0, 2.0]), y=np.empty(0))
    found = read_arrays(tmp_path / "a.npz")
    assert {name: values.tolist() for name, values in found.items()} == {"x": [1.0, 2.0], "y": []}
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


def test_runs_add_up_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "results" / "node.json"
    add_run(file, a_run("usual"))
    add_run(file, a_run("controller"))
    assert [run.mode for run in read_document(file).runs] == ["usual", "controller"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 2}'])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "node.json"
    file.write_bytes(content)
    with pytest.raises(TreadleError, match=r"node\.json has"):
        add_run(file, a_run("usual"))
    assert file.read_bytes() == content
