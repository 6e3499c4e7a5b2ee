"""A node that a group of users shares: each acts on jobs of their own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.node.conftest import StartNode
from tests.node.nodes import Home, RunningNode, wait_until

from .nodes import JOBS, JobNode, body, ready

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
GROUP = 54_321
NOBODY, OTHER, EVE = 65_534, 65_533, 65_532
"""The first is a user of nearly every machine; jobs of who is not are not started."""


@contextmanager
def acting_as(user: int, *groups: int) -> Iterator[None]:
    """For a while, this process may do what that user may."""
    mine, group = os.getgroups(), os.getegid()
    os.setgroups(groups)
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(mine)


@pytest.fixture
def shared(start_node: StartNode, tmp_path: Path) -> JobNode:
    def let_in(home: Home) -> None:
        home.folder.chmod(0o755)

    node = start_node(
        f'[node]\ngroup = "{GROUP}"\n[[model]]\nname = "step"\nfactory = "steps:Step"\n',
        environment={"TREADLE_TURNSTILE_DIR": str(tmp_path / "turnstile")},
        prepare=let_in,
    )
    return ready(node)


@contextmanager
def connect(node: RunningNode, user: int, *groups: int) -> Iterator[httpx.Client]:
    """A client of that user's: who asks is who has connected."""
    transport = httpx.HTTPTransport(uds=str(node.socket), limits=httpx.Limits(max_connections=1))
    with httpx.Client(transport=transport, base_url="http://node", timeout=30) as client:
        with acting_as(user, *groups):
            assert client.get("/v2/health/live").status_code == 200
        yield client


def test_who_is_not_of_the_group_does_not_reach_the_node(shared: JobNode) -> None:
    with (
        socket.socket(socket.AF_UNIX) as connection,
        acting_as(EVE),
        pytest.raises(PermissionError),
    ):
        connection.connect(str(shared.node.socket))
    about = shared.node.socket.stat()
    assert (about.st_mode & 0o777, about.st_uid, about.st_gid) == (0o660, 0, GROUP)


def test_a_job_runs_as_who_submitted_it_with_nothing_of_the_node(shared: JobNode) -> None:
    with connect(shared.node, NOBODY, GROUP) as client:
        script = (
            "id -u; id -ru; id -G; pwd; umask; echo through >/dev/stderr; cat /etc/shadow; "
            "echo $HOME; ls /proc/self/fd | wc -l"
        )
        content = body(script, cwd="/tmp", umask=0o027)
        (number,) = client.post(JOBS, json=content).json()["ids"]
        job = client.get(f"{JOBS}/{number}?wait=30").json()
        assert (job["state"], job["uid"], job["user"]) == ("finished", NOBODY, "nobody")
        user, real, groups, folder, umask, through, shadow, home, files = client.get(
            f"{JOBS}/{number}/log"
        ).text.splitlines()
        assert (user, real, folder, umask) == (str(NOBODY), str(NOBODY), "/tmp", "0027")
        assert str(0) not in groups.split()
        assert (through, home) == ("through", "")
        assert "Permission denied" in shadow
        assert files == "4", "its three streams, and the folder that is listed"


def test_a_folder_that_the_user_may_not_enter_is_not_entered_for_him(shared: JobNode) -> None:
    secret = shared.home.folder / "secret"
    secret.mkdir(mode=0o700)
    with connect(shared.node, NOBODY, GROUP) as client:
        (number,) = client.post(JOBS, json=body("ls", cwd=str(secret))).json()["ids"]
        job = client.get(f"{JOBS}/{number}?wait=30").json()
    assert (job["state"], job["exit_code"]) == ("failed", 126)
    assert "Permission denied" in job["reason"]


def test_users_see_all_jobs_and_touch_their_own(shared: JobNode) -> None:
    with (
        connect(shared.node, NOBODY, GROUP) as nobody,
        connect(shared.node, OTHER, GROUP) as other,
    ):
        script = body("echo secret; sleep 1000", env={"PATH": os.defpath, "KEY": "hidden"})
        (number,) = nobody.post(JOBS, json=script).json()["ids"]
        one = f"{JOBS}/{number}"
        wait_until(lambda: nobody.get(one).json()["state"] == "running", "it runs")
        listed = other.get(JOBS)
        assert [job["id"] for job in listed.json()["jobs"]] == [number]
        assert "hidden" not in listed.text + other.get(one).text
        assert other.get(f"{JOBS}?mine=1").json()["jobs"] == []
        assert other.get("/treadle/v1/status").status_code == 200
        assert "hidden" not in other.get("/treadle/v1/status").text
        for path in ("/cancel", "/pause", "/resume"):
            refused = other.post(one + path)
            assert (refused.status_code, refused.json()["error"]) == (
                403,
                f"job {number} is of user nobody",
            )
        assert other.get(f"{one}/log").status_code == 403
        assert nobody.post(f"{one}/pause").status_code == 200
        assert shared.post(f"/{number}/resume").status_code == 200, "root may"
        assert nobody.post(f"{one}/cancel").status_code == 200
        assert nobody.get(f"{one}?wait=30").json()["state"] == "cancelled"


def test_what_is_the_owners_stays_so(shared: JobNode) -> None:
    with connect(shared.node, NOBODY, GROUP) as client:
        for path in (
            "/treadle/v1/stop",
            "/treadle/v1/modes/GPU-1",
            "/v2/repository/models/step/unload",
            "/v2/repository/models/step/load",
        ):
            assert client.post(path, json={"mode": "turns"}).status_code == 403, path
    assert shared.node.local.post("/v2/repository/models/step/unload").status_code == 200


def test_a_user_whom_the_machine_does_not_know_has_no_jobs(shared: JobNode) -> None:
    with connect(shared.node, OTHER, GROUP) as client:
        (number,) = client.post(JOBS, json=body("true")).json()["ids"]
        job = client.get(f"{JOBS}/{number}?wait=30").json()
    assert (job["state"], job["attempt"]) == ("failed", 1)
    assert job["reason"] == f"it could not be started: there is no user {OTHER} on this machine"


def test_the_folder_of_the_turnstiles_is_the_groups(shared: JobNode) -> None:
    folder = Path(shared.home.environment["TREADLE_TURNSTILE_DIR"])
    for one in (folder, folder / ".progress"):
        about = one.stat()
        assert (about.st_mode & 0o7777, about.st_gid) == (0o3770, GROUP)
