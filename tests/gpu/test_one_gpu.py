"""Unmodified PyTorch programs under ``treadle run`` on one GPU."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from pathlib import Path

import pytest
from tests.gpu.conftest import Floor, eventually, member, members

from treadle.types import Priority

pytestmark = pytest.mark.gpu

GIB = 1 << 30
COMPILES = (
    importlib.util.find_spec("triton") is not None
    and any(map(shutil.which, ("cc", "gcc", "clang")))
    and (Path(sysconfig.get_path("include")) / "Python.h").exists()
)


def test_an_unmodified_program_runs_and_its_launches_are_counted(floor: Floor) -> None:
    program = floor.run("training", "200")
    assert program.expect("done") == ["200"]
    with floor.page() as page:
        seen = member(page, "training")
        assert seen.priority is Priority.BACKGROUND
        assert seen.launches >= 1000  # a step has at least so many kernels as layers, both ways
        assert seen.memory_limit_bytes is None
        program.end()
        assert page.snapshot().members == ()
    assert "treadle" not in program.errors


def test_a_memory_limit_binds_and_is_what_the_program_sees(floor: Floor) -> None:
    limit = 2 * GIB
    program = floor.run("memory", str(3 * GIB), options="--memory 2GiB")
    total, free = map(int, program.expect("sees"))
    assert total <= limit
    assert free < total
    assert program.expect("more") == ["refused"]
    (held,) = map(int, program.expect("held"))
    assert GIB < held < limit  # the rest is the context's
    assert program.expect("done") == [str(1 << 20)]
    with floor.page() as page:
        seen = member(page, "memory")
        assert seen.memory_limit_bytes == limit
        assert seen.memory_used_bytes <= limit
        assert seen.memory_failures >= 2
    program.end()


def test_a_background_program_waits_for_a_critical_one_and_both_end(floor: Floor) -> None:
    background = floor.run("training")
    background.expect("ready")
    critical = floor.run("serving", "300", "0.002", options="--priority critical")
    assert critical.expect("done") == ["300"]
    with floor.page() as page:
        assert member(page, "serving").marks > 0
        waited = member(page, "training")
        assert waited.waits > 0
        assert waited.waited_seconds > 0
    critical.end()
    background.tell("end")
    (steps,) = map(int, background.expect("done"))
    assert steps > 1
    background.end()


def test_a_critical_program_that_is_killed_stops_nobody(floor: Floor) -> None:
    background = floor.run("training")
    background.expect("ready")
    with floor.page() as page:
        page.set_knob("duty_ppm", 0)
        critical = floor.run("serving", "0", "0", options="--priority critical")
        critical.expect("ready")
        eventually(lambda: Priority.BACKGROUND in page.snapshot().closed_for, "closed")
        eventually(lambda: member(page, "training").waiting, "the other waits")
        critical.kill()
        before = member(page, "training").launches
        eventually(lambda: member(page, "training").launches > before + 100, "it goes on")
        assert members(page, "serving") == []
        eventually(lambda: not page.snapshot().closed_for, "open")
    background.tell("end")
    background.expect("done")
    background.end()


@pytest.mark.parametrize(
    ("program", "rounds"),
    [
        ("graphs", 2000),
        pytest.param(
            "compiled",
            100,
            marks=pytest.mark.skipif(
                not COMPILES, reason="needs triton, a C compiler and Python's headers"
            ),
        ),
    ],
)
def test_graphs_and_compiled_code_wait_and_are_right(
    floor: Floor, program: str, rounds: int
) -> None:
    floor.pulses()
    gated = floor.run(program, str(rounds))
    assert gated.expect("done") == [str(rounds)]
    with floor.page() as page:
        seen = member(page, program)
        assert seen.launches >= rounds
        assert seen.waits > 0
    gated.end()
