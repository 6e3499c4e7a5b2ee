"""What a daemon does wrong, one test for each: noticed, told of, and mended by a restart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.devices.mps.standin import StandIn, alive, bystander

from treadle.devices.mps import (
    MpsDaemon,
    MpsError,
    MpsRefusedError,
    MpsState,
    MpsTimeoutError,
    MpsTimeouts,
)
from treadle.devices.mps.control import find_control

DEAF = MpsTimeouts(start=30.0, command=30.0, end=0.2)
"""For one that does not end when it is told to."""
MUTE = MpsTimeouts(start=30.0, command=1.0, end=0.2)
"""For one that does not answer."""


def is_as_new(daemon: MpsDaemon, standin: StandIn) -> None:
    """The daemon runs, and is the only process that was left of all that were started."""
    assert daemon.check().state is MpsState.RUNNING
    assert [pid for pid in standin.started if alive(pid)] == [daemon.check().pid]


@pytest.mark.parametrize(
    ("fault", "seconds", "told"),
    [
        ("hang", 0.5, "nvidia-cuda-mps-control -d' was not answered within 0.5 s"),
        ("leaves", 0.5, "was not answered within 0.5 s"),
        ("refuse", 30.0, "no such GPU"),
        ("silent", 2.0, "started, but is not there"),
        ("dies", 2.0, "started, but is not there; the last line of its log: cannot open a socket"),
    ],
)
def test_one_that_does_not_start_says_why_and_leaves_nothing(
    standin: StandIn, folder: Path, fault: str, seconds: float, told: str
) -> None:
    standin.put("start", fault)
    daemon = standin.daemon(folder, MpsTimeouts(start=seconds, command=30.0, end=30.0))
    with pytest.raises(MpsError) as raised:
        daemon.start()
    assert told in str(raised.value)
    assert daemon.state is MpsState.ENDED
    assert not any(map(alive, standin.started))
    assert not folder.exists()


def test_one_that_failed_to_start_can_be_started_later(standin: StandIn, folder: Path) -> None:
    standin.put("start", "refuse")
    daemon = standin.daemon(folder)
    with pytest.raises(MpsError):
        daemon.start()
    standin.put("start", "")
    with daemon:
        is_as_new(daemon, standin)


@pytest.mark.parametrize("fault", ["garbage", "hang"])
def test_one_that_answers_nonsense_from_the_start_is_not_taken(
    standin: StandIn, folder: Path, fault: str
) -> None:
    standin.when("get_server_list", fault)
    daemon = standin.daemon(folder, MpsTimeouts(start=0.5, command=0.5, end=30.0))
    with pytest.raises(MpsError):
        daemon.start()
    assert not any(map(alive, standin.started))


def test_one_that_ends_before_it_answers_says_so(standin: StandIn, folder: Path) -> None:
    standin.when("get_server_list", "dies")
    with pytest.raises(MpsError, match="MPS: the daemon ended at once"):
        standin.daemon(folder).start()


def test_a_command_that_hangs_is_ended_and_two_in_a_row_mean_hung(
    standin: StandIn, folder: Path
) -> None:
    with standin.daemon(folder, MUTE) as daemon:
        standin.when("get_server_list", "hang")
        first = daemon.check()
        assert first.state is MpsState.RUNNING
        assert "'get_server_list' was not answered within 1 s" in first.reason
        assert daemon.check().state is MpsState.HUNG
        with pytest.raises(MpsTimeoutError):
            daemon.clients()


def test_a_program_that_cannot_be_run_any_more_is_no_sign_of_a_hang(
    standin: StandIn, folder: Path
) -> None:
    with standin.daemon(folder) as daemon:
        away = standin.program.rename(standin.place / "away")
        for _ in range(3):
            health = daemon.check()
            assert health.state is MpsState.RUNNING
            assert "cannot be run" in health.reason
        away.rename(standin.program)


def test_a_hung_daemon_that_answers_again_runs(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder) as daemon:
        standin.when("get_server_list", "garbage")
        for _ in range(2):
            with pytest.raises(MpsRefusedError, match="Segmentation fault"):
                daemon.clients()
        assert daemon.state is MpsState.HUNG
        assert daemon.check().state is MpsState.HUNG
        standin.when("get_server_list", "")
        assert daemon.check().state is MpsState.RUNNING


def test_a_hung_daemon_is_restarted_by_force(standin: StandIn, folder: Path) -> None:
    standin.put("deaf", "yes")
    standin.put("serves", "yes")
    with standin.daemon(folder, DEAF) as daemon:
        standin.when("get_server_list", "refuse")
        for _ in range(2):
            daemon.check()
        assert daemon.state is MpsState.HUNG
        for settled in ("get_server_list", "serves", "servers"):
            (standin.place / settled).unlink(missing_ok=True)
        standin.when("get_server_list", "")
        daemon.restart()
        is_as_new(daemon, standin)
        assert "quit" not in standin.lines("said")
        standin.put("deaf", "")


def test_one_that_does_not_quit_is_killed(standin: StandIn, folder: Path) -> None:
    standin.put("deaf", "yes")
    standin.put("serves", "yes")
    with standin.daemon(folder, DEAF):
        pass
    assert "quit" in standin.lines("said")
    assert not any(map(alive, standin.started))


def test_a_stopped_daemon_is_killed_all_the_same(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder, DEAF):
        (pid,) = standin.started
        os.kill(pid, signal.SIGSTOP)
    assert not alive(pid)


def test_a_daemon_that_dies_is_seen_with_its_last_words(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder) as daemon:
        (folder / "log/control.log").write_text("[Control 7] Starting\n[Control 7] Oh no\n")
        standin.when("get_client_list", "dies")
        with pytest.raises(MpsError):
            daemon.tell("get_client_list 1")
        health = daemon.check()
        assert health.state is MpsState.ENDED
        assert health.pid is None
        assert health.reason.endswith("has ended; the last line of its log: [Control 7] Oh no")
        with pytest.raises(MpsError, match="is ended"):
            daemon.clients()
        standin.when("get_client_list", "")
        daemon.restart()
        is_as_new(daemon, standin)


def test_a_dead_daemons_server_is_ended_by_the_restart(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        pid, server = standin.started
        os.kill(pid, signal.SIGKILL)
        assert alive(server)
        daemon.check()
        daemon.restart()
        assert not alive(server)


@pytest.mark.parametrize("command", ["get_server_list", "get_client_list"])
def test_garbage_is_no_list_of_processes(standin: StandIn, folder: Path, command: str) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        standin.when(command, "garbage")
        with pytest.raises(MpsRefusedError, match=r"Segmentation fault.*not by process numbers"):
            daemon.clients()


def test_a_restart_kills_nobody_whom_the_daemon_only_names(standin: StandIn, folder: Path) -> None:
    with bystander() as other, standin.daemon(folder, DEAF) as daemon:
        standin.put("servers", f"{other}\n")
        standin.put("deaf", "yes")  # its quit would end whom it names
        assert [server.pid for server in daemon.check().servers] == [other]
        daemon.restart()
        assert alive(other)


FAULT = "[2026-01-01 00:00:00.000 Server 77] Server encountered a fatal exception. Shutting down"


def test_a_faulted_server_is_seen_until_it_is_active_again(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        _, server = standin.started
        standin.put("status", "FAULT")
        (folder / "log/server.log").write_text(f"Default threads: 100\n{FAULT}\n")
        health = daemon.check()
        assert health.state is daemon.state is MpsState.FAULTED
        assert health.reason == f"server {server} has had a fault; the line in its log: {FAULT}"
        standin.put("status", "ACTIVE")
        assert daemon.check().state is MpsState.RUNNING


def test_a_fault_is_read_in_the_log_where_no_status_is_told(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    standin.when("get_server_status", "refuse")
    with standin.daemon(folder) as daemon:
        log = folder / "log/server.log"
        log.write_text("[Server 77] Status of client {0, 5} is ACTIVE\n")
        assert daemon.check().state is MpsState.RUNNING
        log.write_text(f"{FAULT}\n[Server 77] Client 5 left\n")
        assert daemon.check().state is MpsState.FAULTED
        log.write_text(f"{FAULT}\n[Server 77] Status of client {{0, 6}} is ACTIVE\n")
        assert daemon.check().state is MpsState.RUNNING


def test_a_faulted_daemon_is_mended_by_a_restart(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    standin.put("status", "FAULT")
    with standin.daemon(folder) as daemon:
        assert daemon.check().state is MpsState.FAULTED
        standin.put("status", "ACTIVE")
        daemon.restart()
        assert daemon.check().state is MpsState.RUNNING
        assert sum(map(alive, standin.started)) == 2


def test_without_the_program_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MpsError, match="MPS: no nvidia-cuda-mps-control on the PATH nor in"):
        find_control(elsewhere=[folder])


def test_the_program_is_found_on_the_path_or_where_the_driver_puts_it(
    standin: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_control(elsewhere=[folder, standin.place]) == standin.program
    monkeypatch.setenv("PATH", str(standin.place))
    assert find_control(elsewhere=[]) == standin.program


def test_a_program_that_cannot_be_run_says_so(folder: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    with pytest.raises(MpsError, match="nothing cannot be run: No such file"):
        MpsDaemon(folder, control=nothing).start()
    assert not folder.exists()
    nothing.write_text("")
    with pytest.raises(MpsError, match="nothing cannot be run: Permission denied"):
        MpsDaemon(folder, control=nothing).start()
