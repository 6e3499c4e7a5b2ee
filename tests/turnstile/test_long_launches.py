"""Who runs for too long at a turnstile, who waits for it, and which processes may be locked."""

from __future__ import annotations

import pytest
from tests.turnstile.harness import World, eventually, uuid_of
from tests.turnstile.test_turnstile import marker

from treadle.devices.checkpoint import CheckpointError
from treadle.programs.holding import Gatekeeper, seat_name

FOREVER_US = 100_000_000
GPU = [uuid_of()]


class Locks:
    """Notes who is locked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.problem = ""

    def lock(self, pid: int) -> None:
        self.calls.append(("lock", pid))
        if self.problem:
            raise CheckpointError(self.problem)

    def unlock(self, pid: int) -> None:
        self.calls.append(("unlock", pid))
        if self.problem:
            raise CheckpointError(self.problem)


def test_a_long_launch_is_found_with_its_name_and_its_victims(world: World) -> None:
    program = world.start(TREADLE_NAME=seat_name("train", 17), TREADLE_WATCH="1")
    keeper = Gatekeeper(world.folder)
    program.ask(f"launch 1 {FOREVER_US}")
    eventually(lambda: len(keeper.long_launches(17, GPU, 0.1)) == 1, "it is found")
    (found,) = keeper.long_launches(17, GPU, 0.0)
    assert (found.gpu, found.pid, found.victims) == (uuid_of(), program.pid, ())
    assert found.seconds >= 0.1
    name = f"kernel_{FOREVER_US}"
    eventually(lambda: keeper.long_launches(17, GPU, 0.0)[0].kernel == name, "it has its name")
    critical = marker(world)
    critical.ask("mark")
    (victim,) = keeper.long_launches(17, GPU, 0.0)[0].victims
    assert victim.endswith(f"({critical.pid})")
    critical.ask("unmark")
    assert keeper.long_launches(17, GPU, 0.0)[0].victims == ()
    assert keeper.long_launches(17, GPU, 1e6) == []
    assert keeper.long_launches(7, GPU, 0.0) == []
    assert keeper.long_launches(17, [uuid_of(3)], 0.0) == []


def test_less_urgent_members_are_no_victims(world: World) -> None:
    program = world.start(
        TREADLE_NAME=seat_name("serve", 3), TREADLE_CLASS="critical", TREADLE_WATCH="1"
    )
    other = world.start()
    other.ask("launch 1 10")
    keeper = Gatekeeper(world.folder)
    program.ask(f"launch 1 {FOREVER_US}")
    other.tell("launch 1 10")
    eventually(lambda: len(keeper.long_launches(3, GPU, 0.1)) == 1, "it is found")
    assert keeper.long_launches(3, GPU, 0.0)[0].victims == ()


def test_only_processes_that_say_that_they_are_of_the_job_are_locked(world: World) -> None:
    mine = world.start(TREADLE_NAME=seat_name("train", 17), TREADLE_MARK="17.1.mine")
    world.start(TREADLE_NAME=seat_name("train", 17), TREADLE_MARK="17.1.other").ask("launch 1 10")
    world.start(TREADLE_NAME=seat_name("train", 17)).ask("launch 1 10")
    mine.ask("launch 1 10")
    locks = Locks()
    keeper = Gatekeeper(world.folder, "mine", locks)
    assert keeper.lock(17, GPU) == ""
    assert keeper.unlock(17, GPU) == ""
    assert locks.calls == [("lock", mine.pid), ("unlock", mine.pid)]
    assert "can be told" in keeper.lock(18, GPU)
    locks.problem = "the driver has not answered"
    assert keeper.lock(17, GPU) == locks.problem
    assert keeper.unlock(17, GPU) == f"process {mine.pid}: {locks.problem}"


@pytest.mark.parametrize("what", ["lock", "unlock"])
def test_clients_of_mps_are_not_locked(world: World, what: str) -> None:
    world.start(
        TREADLE_NAME=seat_name("train", 17),
        TREADLE_MARK="17.1.mine",
        CUDA_MPS_PIPE_DIRECTORY="/nowhere",
    ).ask("launch 1 10")
    locks = Locks()
    keeper = Gatekeeper(world.folder, "mine", locks)
    assert ("under MPS" in getattr(keeper, what)(17, GPU)) is (what == "lock")
    assert locks.calls == []
