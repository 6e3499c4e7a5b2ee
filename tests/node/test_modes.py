"""The modes of GPUs: changed when nothing runs there, kept while a daemon fails and recovers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from treadle.devices.mps import ClientLimits, MpsError, MpsHealth, MpsState
from treadle.errors import InvalidRequestError, NotFoundError
from treadle.node.modes import GpuModes
from treadle.programs.spec import Job, JobSpec
from treadle.types import Mode, Priority, TaskState

GPU = "GPU-0000"


def job(number: int) -> Job:
    return Job(
        id=number,
        spec=JobSpec(command=("true",)),
        state=TaskState.RUNNING,
        uid=0,
        submitted_at=0.0,
    )


@dataclass
class Daemon:
    """Does what a daemon's owner sees of it."""

    folder: Path
    gpus: Sequence[str]
    calls: list[str]
    state: MpsState = MpsState.RUNNING
    problem: str = ""

    def start(self) -> bool:
        if self.problem:
            raise MpsError(self.problem)
        self.calls.append("start")
        self.folder.mkdir(exist_ok=True)
        return False

    def restart(self) -> None:
        self.calls.append("restart")
        self.state = MpsState.RUNNING

    def close(self) -> None:
        self.calls.append("close")
        self.folder.rmdir()

    def let_go(self) -> None:
        self.calls.append("let_go")

    def check(self) -> MpsHealth:
        return MpsHealth(state=self.state, reason="it says so", pid=None, servers=())

    def client_environment(self, limits: ClientLimits) -> dict[str, str]:
        return {"CLASS": limits.priority.label}


@dataclass
class World:
    """One GPU, and who uses it."""

    folder: Path
    users: list[Job] = field(default_factory=list)
    again: list[tuple[int, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    daemons: list[Daemon] = field(default_factory=list)
    problem: str = ""
    no_program: str = ""

    def modes(self, wanted: Mode = Mode.TURNS) -> GpuModes:
        async def again(one: Job, reason: str) -> None:
            self.again.append((one.id, reason))

        def make(folder: Path, gpus: Sequence[str]) -> Any:
            if self.no_program:
                raise MpsError(self.no_program)
            self.daemons.append(Daemon(folder, gpus, self.calls, problem=self.problem))
            return self.daemons[-1]

        return GpuModes(
            {GPU: wanted},
            self.folder,
            self.folder / "modes.json",
            users=lambda uuid: self.users,
            again=again,
            make=make,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_gpu_in_turns_has_no_daemon(world: World) -> None:
    modes = world.modes()
    await modes.start()
    assert not modes.is_parallel(GPU)
    assert modes.closed(GPU) == ""
    assert modes.environment(GPU, job(1)) == {}
    await modes.close()
    assert world.calls == []


async def test_a_gpu_in_parallel_has_one_and_its_jobs_are_clients(world: World) -> None:
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    assert modes.is_parallel(GPU)
    assert modes.environment(GPU, job(1)) == {"CLASS": "background"}
    await modes.close()
    assert world.calls == ["start", "close"]


async def test_the_mode_changes_once_nothing_runs_there(world: World) -> None:
    world.users = [job(1)]
    modes = world.modes()
    await modes.start()
    modes.change(GPU, Mode.PARALLEL, restart=False)
    await modes.step()
    assert not modes.is_parallel(GPU)
    assert "changes to parallel mode once nothing runs there" in modes.closed(GPU)
    assert world.again == []
    world.users = []
    await modes.step()
    assert modes.is_parallel(GPU)
    assert modes.closed(GPU) == ""
    await modes.close()


async def test_or_its_jobs_are_started_again_for_that(world: World) -> None:
    world.users = [job(1), job(2)]
    modes = world.modes()
    await modes.start()
    modes.change(GPU, Mode.PARALLEL, restart=True)
    await modes.step()
    reason = "its GPU changes to parallel mode"
    assert world.again == [(1, reason), (2, reason)]
    world.users = []
    await modes.step()
    assert modes.is_parallel(GPU)
    await modes.close()


async def test_back_in_turns_the_daemon_is_ended(world: World) -> None:
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    modes.change(GPU, Mode.TURNS, restart=False)
    await modes.step()
    assert not modes.is_parallel(GPU)
    assert world.calls == ["start", "close"]
    await modes.close()


async def test_a_change_outlives_the_node_and_so_does_a_daemon_with_clients(world: World) -> None:
    modes = world.modes()
    await modes.start()
    modes.change(GPU, Mode.PARALLEL, restart=False)
    await modes.step()
    world.users = [job(1)]
    await modes.close()
    assert world.calls == ["start", "let_go"]
    again = world.modes(Mode.TURNS)
    await again.start()
    assert again.is_parallel(GPU)
    assert again.closed(GPU) == ""
    world.users = []
    await again.close()


async def test_a_daemon_whose_mode_is_not_wanted_any_more_serves_its_clients_to_the_end(
    world: World,
) -> None:
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    world.users = [job(1)]
    await modes.close()
    again = world.modes(Mode.TURNS)
    await again.start()
    assert again.is_parallel(GPU)
    assert "changes to turns mode" in again.closed(GPU)
    world.users = []
    await again.step()
    assert not again.is_parallel(GPU)
    await again.close()


@pytest.mark.parametrize("state", [MpsState.HUNG, MpsState.FAULTED, MpsState.ENDED])
async def test_a_daemon_that_fails_is_restarted_and_its_jobs_too(
    world: World, state: MpsState
) -> None:
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    world.users = [job(7)]
    world.daemons[-1].state = state
    await modes.step()
    assert world.again == [(7, f"its MPS daemon is {state}: it says so")]
    assert world.calls == ["start", "restart"]
    assert modes.closed(GPU) == ""
    world.users = []
    await modes.close()


async def test_a_daemon_that_cannot_start_closes_the_gpu_and_says_why(world: World) -> None:
    world.problem = "no answer within 20 s"
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    assert not modes.is_parallel(GPU)
    assert modes.closed(GPU) == "parallel mode cannot be had: no answer within 20 s"
    await modes.close()


async def test_what_is_left_of_a_daemon_closes_no_gpu_in_turns(world: World) -> None:
    (world.folder / f"mps-{GPU}").mkdir()
    world.no_program = "no nvidia-cuda-mps-control here"
    modes = world.modes()
    await modes.start()
    assert modes.closed(GPU) == ""
    await modes.close()


async def test_a_gpu_on_which_models_are_served_keeps_its_mode(world: World) -> None:
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    assert modes.serve(GPU, ClientLimits(priority=Priority.CRITICAL)) == {"CLASS": "critical"}
    with pytest.raises(InvalidRequestError, match="models are served on this GPU"):
        modes.change(GPU, Mode.TURNS, restart=True)
    modes.change(GPU, Mode.PARALLEL, restart=False)
    assert modes.closed(GPU) == ""
    await modes.close()


async def test_what_cannot_be_had_is_refused(world: World) -> None:
    world.no_program = "no nvidia-cuda-mps-control here"
    modes = world.modes()
    await modes.start()
    with pytest.raises(InvalidRequestError, match="no nvidia-cuda-mps-control here"):
        modes.change(GPU, Mode.PARALLEL, restart=False)
    with pytest.raises(NotFoundError, match="there is no GPU GPU-1; there are: GPU-0000"):
        modes.change("GPU-1", Mode.TURNS, restart=False)
    assert modes.closed(GPU) == ""
    await modes.close()


async def test_modes_that_cannot_be_read_are_as_configured(world: World) -> None:
    (world.folder / "modes.json").write_text("{")
    modes = world.modes(Mode.PARALLEL)
    await modes.start()
    assert modes.is_parallel(GPU)
    await modes.close()
