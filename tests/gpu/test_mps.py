"""An MPS daemon of our own on a real GPU, and its clients."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.gpu.conftest import PROGRAMS, Floor, Program, eventually

from treadle.devices.mps import ClientLimits, MpsDaemon, MpsError, MpsState, find_control
from treadle.types import Priority

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture
def daemon(floor: Floor) -> Iterator[MpsDaemon]:
    try:
        find_control()
    except MpsError as error:
        pytest.skip(str(error))
    with MpsDaemon(floor.folder / "mps", floor.gpus[:1]) as daemon:
        yield daemon


def client(floor: Floor, daemon: MpsDaemon, limits: ClientLimits, size: int = MIB) -> Program:
    command = [sys.executable, str(PROGRAMS / "client.py"), str(size)]
    return floor.start(command, **daemon.client_environment(limits))


NORMAL = ClientLimits(priority=Priority.NORMAL)
BACKGROUND = ClientLimits(priority=Priority.BACKGROUND)


def test_clients_are_listed_while_they_are_there(floor: Floor, daemon: MpsDaemon) -> None:
    assert daemon.clients() == []
    both = [client(floor, daemon, NORMAL), client(floor, daemon, BACKGROUND)]
    for program in both:
        program.expect("ready")
    assert {one.pid for one in daemon.clients()} == {program.pid for program in both}
    health = daemon.check()
    assert health.state is MpsState.RUNNING
    assert [server.status for server in health.servers] == ["ACTIVE"]
    for program in both:
        program.end()
    eventually(lambda: daemon.clients() == [], "no clients")


def test_limits_bind(floor: Floor, daemon: MpsDaemon) -> None:
    limits = ClientLimits(priority=Priority.NORMAL, sm_fraction=0.5, memory_bytes=4096 * MIB)
    (fewer,) = client(floor, daemon, limits).expect("ready")
    (every,) = client(floor, daemon, NORMAL, 6144 * MIB).expect("ready")
    assert int(fewer) < int(every)
    client(floor, daemon, limits, 6144 * MIB).expect("refused")


def test_a_client_is_terminated_and_another_goes_on(floor: Floor, daemon: MpsDaemon) -> None:
    victim, other = client(floor, daemon, BACKGROUND), client(floor, daemon, NORMAL)
    victim.expect("ready")
    other.expect("ready")
    daemon.terminate(victim.pid)
    victim.tell("work")
    assert victim.expect("failed")
    other.tell("work")
    other.expect("worked")
    other.end()


def test_a_daemon_that_was_let_go_is_adopted_with_its_clients(
    floor: Floor, daemon: MpsDaemon
) -> None:
    program = client(floor, daemon, NORMAL)
    program.expect("ready")
    daemon.let_go()
    with MpsDaemon(floor.folder / "mps", floor.gpus[:1]) as next_owner:
        assert [one.pid for one in next_owner.clients()] == [program.pid]
        program.tell("work")
        program.expect("worked")
        program.end()


def test_a_restart_with_clients_brings_a_daemon_that_serves(
    floor: Floor, daemon: MpsDaemon
) -> None:
    former = client(floor, daemon, NORMAL)
    former.expect("ready")
    daemon.restart()
    former.kill()
    program = client(floor, daemon, NORMAL)
    program.expect("ready")
    assert [one.pid for one in daemon.clients()] == [program.pid]
    program.end()
