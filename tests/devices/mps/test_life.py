"""A daemon's life when all goes well: started, asked, restarted, ended."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.devices.mps.standin import GPU, StandIn, alive

from treadle.devices.mps import (
    ClientLimits,
    MpsClient,
    MpsDaemon,
    MpsError,
    MpsRefusedError,
    MpsServer,
    MpsState,
)
from treadle.types import Priority


def test_it_starts_answers_and_is_gone_when_closed(standin: StandIn, folder: Path) -> None:
    daemon = standin.daemon(folder)
    assert daemon.check().state is MpsState.ABSENT
    assert not daemon.start()
    (pid,) = standin.started
    health = daemon.check()
    assert (health.state, health.pid, health.servers) == (MpsState.RUNNING, pid, ())
    daemon.close()
    assert daemon.state is MpsState.ENDED
    assert not alive(pid)
    assert not folder.exists()
    daemon.close()


def test_it_has_its_gpu_directories_of_its_own_and_nothing_of_the_callers(
    standin: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("TREADLE_CLASS", "background")
    monkeypatch.setenv("LD_PRELOAD", "")
    with standin.daemon(folder) as daemon:
        assert daemon.pipe_directory.parent == folder
        for place in (folder, folder / "pipe", folder / "log"):
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
        seen = standin.environment
    assert seen["CUDA_VISIBLE_DEVICES"] == GPU
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(folder / "pipe")
    assert seen["CUDA_MPS_LOG_DIRECTORY"] == str(folder / "log")
    assert not {"CUDA_MPS_CLIENT_PRIORITY", "TREADLE_CLASS", "LD_PRELOAD"} & set(seen)


def test_without_gpus_it_has_all(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder, gpus=()):
        assert "CUDA_VISIBLE_DEVICES" not in standin.environment


def test_it_is_not_started_twice(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder) as daemon:
        with pytest.raises(MpsError, match="is running already"):
            daemon.start()
        assert len(standin.started) == 1


def test_a_restart_brings_a_new_one_and_ends_server_and_daemon(
    standin: StandIn, folder: Path
) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        daemon.restart()
        assert daemon.check().state is MpsState.RUNNING
        assert [alive(pid) for pid in standin.started] == [False, False, True, True]


def test_one_that_was_closed_can_be_started_again(standin: StandIn, folder: Path) -> None:
    daemon = standin.daemon(folder)
    daemon.start()
    daemon.close()
    with daemon:
        assert daemon.check().state is MpsState.RUNNING


def test_servers_and_clients_are_told(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        assert daemon.clients() == []
        _, server = standin.started
        standin.put(f"clients.{server}", "11\n12\n")
        assert daemon.check().servers == (MpsServer(pid=server, status="ACTIVE"),)
        assert daemon.clients() == [MpsClient(pid=pid, server=server) for pid in (11, 12)]


def test_one_client_is_terminated_and_the_others_stay(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon:
        _, server = standin.started
        standin.put(f"clients.{server}", "11\n12\n")
        daemon.terminate(11)
        assert f"terminate_client {server} 11" in standin.lines("said")
        assert [client.pid for client in daemon.clients()] == [12]
        with pytest.raises(MpsError, match="11 is no client of this daemon; its clients: 12"):
            daemon.terminate(11)


def test_a_command_that_is_refused_is_no_sign_of_a_hang(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder) as daemon:
        for _ in range(3):
            with pytest.raises(MpsRefusedError, match="'dance': Unknown command dance"):
                daemon.tell("dance")
        assert daemon.state is MpsState.RUNNING
        with pytest.raises(ValueError, match="not one control command"):
            daemon.tell("quit\nquit")


def test_without_a_daemon_there_is_nobody_to_tell(standin: StandIn, folder: Path) -> None:
    with pytest.raises(MpsError, match="is absent"):
        standin.daemon(folder).tell("get_server_list")
    assert not standin.lines("said")


def test_commands_of_many_threads_never_overlap(standin: StandIn, folder: Path) -> None:
    standin.put("serves", "yes")
    with standin.daemon(folder) as daemon, ThreadPoolExecutor(6) as pool:
        ready = threading.Barrier(6)

        def ask(number: int) -> None:
            ready.wait()
            if number % 2:
                assert daemon.check().state is MpsState.RUNNING
            else:
                daemon.tell("get_server_list")
                daemon.clients()

        list(pool.map(ask, range(6)))
    # One at the start and the end; a check says two, an even number's turn three.
    assert len(standin.lines("said")) == 2 + 3 * 2 + 3 * 3
    assert not standin.lines("overlaps")


def test_its_clients_find_it(standin: StandIn, folder: Path) -> None:
    daemon = standin.daemon(folder)
    variables = daemon.client_environment(ClientLimits(priority=Priority.NORMAL))
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon.pipe_directory)
    assert variables["CUDA_VISIBLE_DEVICES"] == GPU


@pytest.mark.parametrize("gpu", ["0", "GPU-1,GPU-2", ""])
def test_a_gpu_is_named_by_its_uuid(standin: StandIn, folder: Path, gpu: str) -> None:
    with pytest.raises(ValueError, match="is not a GPU's UUID; allowed: GPU-"):
        standin.daemon(folder, gpus=(gpu,))


def test_hung_after_at_least_one_failure(standin: StandIn, folder: Path) -> None:
    with pytest.raises(ValueError, match="hung_after is 0; allowed: 1 and above"):
        MpsDaemon(folder, control=standin.program, hung_after=0)


def test_a_slow_one_is_waited_for(standin: StandIn, folder: Path) -> None:
    os.mkfifo(standin.place / "gate")
    with standin.daemon(folder) as daemon:
        standin.when("get_server_status", "waits")
        command = [sys.executable, "-c", f"open({str(standin.place / 'gate')!r}, 'w').close()"]
        with subprocess.Popen(command):
            assert daemon.tell("get_server_status 1") == "ACTIVE"
