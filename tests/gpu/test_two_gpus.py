"""Programs that use two GPUs at once: held on one of them, they must not hang on the other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.gpu.conftest import PROGRAMS, Floor, eventually, member, members

from treadle.turnstile import Turnstile

pytestmark = pytest.mark.gpu(2)


def launches(page: Turnstile) -> int:
    """Of all ranks on a GPU."""
    return sum(rank.launches for rank in members(page, "ddp"))


def goes_on(page: Turnstile) -> None:
    enough = launches(page) + 2000  # about a hundred steps
    eventually(lambda: launches(page) > enough, "further steps")


@pytest.mark.parametrize("as_gang", [True, False])
def test_data_parallel_ranks_go_on_beside_a_critical_program(
    floor: Floor, tmp_path: Path, as_gang: bool
) -> None:
    end = tmp_path / "end"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    gang = {"TREADLE_GANG": f"{floor.path(0)},{floor.path(1)}"} if as_gang else {}
    for gpu in (0, 1):
        floor.page(gpu).close()  # a gang looks at pages that may not be its own
    ranks = floor.run_command(
        "ddp", [sys.executable, *torchrun, str(PROGRAMS / "ddp.py"), str(end)], gpus=2, **gang
    )
    ranks.expect("ready")
    critical = floor.run("serving", "0", "0.003", options="--priority critical")
    critical.expect("ready")
    with floor.page(0) as first, floor.page(1) as second:
        goes_on(first)
        goes_on(second)
        assert member(first, "serving").marks > 0
        assert any(rank.waits for rank in members(first, "ddp"))
    critical.tell("end")
    critical.expect("done")
    critical.end()
    end.touch()
    (steps,) = map(int, ranks.expect("done"))
    assert steps > 10
    ranks.end()


@pytest.mark.parametrize("busy", [0, 1])
def test_a_pipeline_over_two_gpus_is_right_while_one_of_them_is_wanted(
    floor: Floor, busy: int
) -> None:
    floor.pulses(busy)
    program = floor.run("pipeline", "200", gpus=2)
    assert program.expect("done") == ["200"]
    for gpu in (0, 1):
        with floor.page(gpu) as page:
            seen = member(page, "pipeline")
            assert seen.launches > 0
            assert seen.waits > 0 or gpu != busy
    program.end()


@pytest.mark.parametrize("kind", ["all_reduce", "data_parallel"])
def test_collectives_of_one_process_go_on_while_its_gpus_are_wanted(
    floor: Floor, kind: str
) -> None:
    for gpu in (0, 1):
        floor.pulses(gpu)
    program = floor.run("nccl", kind, "200", gpus=2)
    assert program.expect("done") == ["200"]
    for gpu in (0, 1):
        with floor.page(gpu) as page:
            assert member(page, "nccl").launches > 0
    program.end()
