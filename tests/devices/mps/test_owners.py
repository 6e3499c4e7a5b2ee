"""Whose a daemon is: adopted if it is ours, left alone if it is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.devices.mps.standin import GPU, StandIn, alive, bystander

from treadle.devices.mps import MpsError, MpsState, MpsTimeouts, other_daemon, usual_pipe_directory

OTHER_GPU = "GPU-00000000-0000-0000-0000-000000000000"
CRASH = """
import os, sys
from pathlib import Path
from treadle.devices.mps import MpsDaemon
MpsDaemon(Path(sys.argv[1]), [sys.argv[2]], control=Path(sys.argv[3])).start()
os._exit(1)
"""


def crash(standin: StandIn, folder: Path) -> int:
    """Let an owner start a daemon and die, and return the daemon's pid."""
    command = [sys.executable, "-c", CRASH, str(folder), GPU, str(standin.program)]
    subprocess.run(command, check=False, timeout=60)
    (pid,) = standin.started
    assert alive(pid)
    return pid


def test_one_that_a_crashed_owner_left_behind_is_adopted(standin: StandIn, folder: Path) -> None:
    pid = crash(standin, folder)
    daemon = standin.daemon(folder)
    assert daemon.start()
    assert daemon.check().pid == pid
    daemon.close()
    assert standin.started == [pid]
    assert not alive(pid)


def test_one_whose_owner_died_before_it_wrote_that_down_is_adopted_too(
    standin: StandIn, folder: Path
) -> None:
    pid = crash(standin, folder)
    (folder / "daemon.json").unlink()
    with standin.daemon(folder) as daemon:
        assert daemon.check().pid == pid


def test_one_that_was_let_go_is_adopted(standin: StandIn, folder: Path) -> None:
    first = standin.daemon(folder)
    first.start()
    first.let_go()
    assert first.state is MpsState.ABSENT
    first.close()
    with standin.daemon(folder) as second:
        assert second.check().pid == standin.started[0]


@pytest.mark.parametrize("fault", ["hang", "garbage", "refuse"])
def test_one_that_was_left_behind_and_does_not_answer_is_replaced(
    standin: StandIn, folder: Path, fault: str
) -> None:
    crash(standin, folder)
    standin.when("get_server_list", fault)
    daemon = standin.daemon(folder, MpsTimeouts(start=0.5, command=0.5, end=30.0))
    with pytest.raises(MpsError):
        daemon.start()  # the new one does no better
    assert not any(map(alive, standin.started))


def test_one_for_other_gpus_is_replaced(standin: StandIn, folder: Path) -> None:
    old = crash(standin, folder)
    with standin.daemon(folder, gpus=(OTHER_GPU,)) as daemon:
        assert not alive(old)
        assert daemon.check().pid == standin.started[1]
        assert standin.environment["CUDA_VISIBLE_DEVICES"] == OTHER_GPU


@pytest.mark.parametrize("change", [{"started": 1}, {"epoch": "another boot"}])
def test_a_process_that_has_a_dead_daemons_number_is_left_alone(
    standin: StandIn, folder: Path, change: dict[str, object]
) -> None:
    first = standin.daemon(folder)
    first.start()
    first.let_go()
    (old,) = standin.started
    standin.bury()
    with bystander() as other:
        state = folder / "daemon.json"
        state.write_text(json.dumps(json.loads(state.read_text()) | {"pid": other} | change))
        (folder / "pipe/nvidia-cuda-mps-control.pid").write_text(f"{other}\n")
        with standin.daemon(folder) as second:
            assert second.check().pid == standin.started[1] != old
            second.restart()
        assert alive(other)


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"pid": "x", "started": 1}'])
def test_a_state_file_that_cannot_be_read_is_none(
    standin: StandIn, folder: Path, state: str
) -> None:
    folder.mkdir(0o700)
    (folder / "daemon.json").write_text(state)
    with standin.daemon(folder) as daemon:
        assert daemon.check().state is MpsState.RUNNING


def test_a_daemon_that_somebody_else_runs_in_the_folder_is_left_alone(
    standin: StandIn, folder: Path
) -> None:
    pipe = folder / "pipe"
    folder.mkdir(0o700)
    pipe.mkdir(0o700)
    (folder / "log").mkdir(0o700)
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    subprocess.run([standin.program, "-d"], env=environment, check=True, timeout=60)
    (pid,) = standin.started
    daemon = standin.daemon(folder)
    for begin in (daemon.start, daemon.restart):
        with pytest.raises(MpsError, match=f"pid {pid}; it was not started here and is left alone"):
            begin()
        assert daemon.state is MpsState.ABSENT
    daemon.close()
    assert alive(pid)
    assert (pipe / "control").exists()
    assert not standin.lines("said")


def test_a_folder_has_one_owner_at_a_time(standin: StandIn, folder: Path) -> None:
    with standin.daemon(folder) as first:
        second = standin.daemon(folder)
        with pytest.raises(MpsError, match="another process keeps a daemon in"):
            second.start()
        second.close()
        assert first.check().state is MpsState.RUNNING


def test_another_users_folder_is_left_alone(
    standin: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(0o700)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(MpsError, match=rf"belongs to user .*{me}.* and is left alone"):
        standin.daemon(folder).start()
    assert not standin.started


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_that_others_may_write_is_none(standin: StandIn, folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(MpsError, match=r"others may write .* allowed: its owner alone"):
        standin.daemon(folder).start()


def test_a_file_in_the_folders_place_is_told(standin: StandIn, folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(MpsError, match="File exists"):
        standin.daemon(folder).start()


def test_a_path_too_long_for_a_socket_says_how_long_it_may_be(
    standin: StandIn, tmp_path: Path
) -> None:
    longest = 83
    place = Path("/tmp") / ("x" * (longest - len("/tmp/")))
    standin.daemon(place)
    with pytest.raises(MpsError, match=f"too long a path for a Unix socket.*{longest} bytes"):
        standin.daemon(place.with_name(place.name + "x"))


def test_what_else_is_in_the_folder_stays(standin: StandIn, folder: Path) -> None:
    folder.mkdir(0o700)
    (folder / "note").write_text("mine")
    with standin.daemon(folder):
        pass
    assert [one.name for one in folder.iterdir()] == ["note"]


def test_a_daemon_of_others_is_told_with_its_owner(tmp_path: Path) -> None:
    with bystander() as pid:
        (tmp_path / "control").write_text("")
        secret = other_daemon(tmp_path)
        assert secret is not None
        assert "its process number cannot be read" in secret.reason
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{pid}\n")
        if os.geteuid() == 0:
            os.chown(tmp_path / "control", 12345, -1)
        found = other_daemon(tmp_path)
        assert found is not None
        assert (found.pipe_directory, found.pid) == (tmp_path, pid)
        assert found.uid == (12345 if os.geteuid() == 0 else os.geteuid())
        assert f"{found.uid}" in found.reason
        assert f"pid {pid}" in found.reason
        assert alive(pid)
    gone = other_daemon(tmp_path)
    assert gone is not None
    assert gone.pid is None
    assert f"its process, {pid}, does not run here" in gone.reason


def test_where_no_pipe_is_there_is_no_daemon(tmp_path: Path) -> None:
    assert other_daemon(tmp_path / "nowhere") is None


def test_a_daemon_is_looked_for_where_programs_look() -> None:
    assert usual_pipe_directory(lambda name: None) == Path("/tmp/nvidia-mps")
    told = {"CUDA_MPS_PIPE_DIRECTORY": "/run/m"}
    assert usual_pipe_directory(told.get) == Path("/run/m")
