"""Jobs through a node: what its users see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.node.conftest import StartNode

from .nodes import JOBS, JobNode, body, ready

FOREVER = "sleep 1000"
TOKEN = "warp-and-weft"


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> JobNode:
    return ready(start_shared_node("[jobs]\nkeep = 500\n"))


@pytest.fixture
def node(shared: JobNode) -> Iterator[JobNode]:
    """The node that most tests share, without jobs at the end of each."""
    yield shared
    listed = shared.get("?states=queued,starting,running,paused&limit=1000").json()["jobs"]
    for job in listed:
        shared.post(f"/{job['id']}/cancel")
    for job in listed:
        shared.over(job["id"])


def test_a_job_is_submitted_and_looked_at(node: JobNode) -> None:
    number = node.one("echo hello; exit 3", name="mine")
    job = node.over(number)
    assert (job["state"], job["reason"], job["exit_code"]) == ("failed", "exit code 3", 3)
    assert (job["name"], job["uid"]) == ("mine", os.geteuid())
    assert job["peer_pid"] == os.getpid()
    assert "env" not in job["spec"]
    history = node.job(number, "?history=1")["history"]
    assert [entry["state"] for entry in history][:2] == ["queued", "starting"]
    assert history[-1]["reason"] == "exit code 3"
    assert node.log(number) == b"hello\n"


def test_an_array_is_queued_at_once_and_listed(node: JobNode) -> None:
    numbers = node.submit("echo $TREADLE_ARRAY_INDEX", array=[3, 5, 7])
    for number in numbers:
        node.over(number)
    assert [node.log(number) for number in numbers] == [b"3\n", b"5\n", b"7\n"]
    listed = node.get(f"?limit=3&states=finished&before={numbers[-1] + 1}").json()
    assert [job["id"] for job in listed["jobs"]] == numbers[::-1]
    assert [job["spec"]["array_index"] for job in listed["jobs"]] == [7, 5, 3]


def test_who_waits_is_answered_when_it_is_over(node: JobNode, pool: ThreadPoolExecutor) -> None:
    number = node.one(FOREVER)
    waiting = pool.submit(node.over, number)
    node.comes_to(number, "running")
    assert node.get("?states=running").json()["counts"] == {"running": 1}
    assert node.job(number, "?wait=0.01")["state"] == "running"
    assert node.post(f"/{number}/cancel").status_code == 200
    assert waiting.result()["state"] == "cancelled"


def test_a_job_is_paused_and_resumed(node: JobNode) -> None:
    number = node.one(FOREVER)
    node.comes_to(number, "running")
    assert node.post(f"/{number}/pause").json()["held"] is True
    node.comes_to(number, "paused")
    assert node.post(f"/{number}/resume").json()["held"] is False
    node.comes_to(number, "running")


def test_output_is_followed_to_the_end(node: JobNode) -> None:
    gate = node.home.folder / "gate"
    number = node.one(f"echo first; while [ ! -e {gate} ]; do sleep 0.01; done; echo last")
    seen = b""
    with node.node.local.stream("GET", f"{JOBS}/{number}/log?follow=1") as answer:
        for part in answer.iter_bytes():
            seen += part
            gate.touch()
    assert seen == b"first\nlast\n"
    gate.unlink()


def test_output_is_followed_into_the_next_attempts(node: JobNode) -> None:
    number = node.one("echo $TREADLE_JOB; exit 1", retries=2)
    seen = node.log(number, "?follow=1").decode().split()
    assert seen == [f"{number}.{attempt}" for attempt in (1, 2, 3)]
    assert node.log(number).decode().split() == [f"{number}.3"]


def test_output_that_is_followed_while_files_change(node: JobNode) -> None:
    # Slowly enough to be followed, and too much to be kept.
    number = node.one(
        "i=0; while [ $i -lt 60 ]; do printf '%0200d\\n' $i; i=$((i+1)); sleep 0.01; done",
        log_bytes=8192,
    )
    lines = node.log(number, "?follow=1").decode().split()
    assert [int(line) for line in lines] == [*range(60)]
    assert len(node.log(number).split()) < 60


def test_the_last_lines_are_shown(node: JobNode) -> None:
    number = node.one("seq 100")
    node.over(number)
    assert node.log(number, "?tail=2") == b"99\n100\n"
    assert node.log(number, "?tail=0") == b""


def test_a_job_that_has_not_run_has_no_output(node: JobNode) -> None:
    first = node.one(FOREVER)
    number = node.one("true", after=[first])
    assert node.log(number) == b""


@pytest.mark.parametrize(
    ("method", "path", "code", "says"),
    [
        ("GET", "/99999", 404, "there is no job 99999"),
        ("GET", f"/{2**70}", 404, "there is no job"),
        ("GET", "/x", 404, ""),
        ("POST", "/99999/cancel", 404, "there is no job 99999"),
        ("POST", "/99999/pause", 404, "there is no job 99999"),
        ("POST", "/99999/resume", 404, "there is no job 99999"),
        ("GET", "/99999/log", 404, "there is no job 99999"),
        ("POST", "/1/dance", 404, ""),
        ("GET", "?states=asleep", 400, "states: 'asleep'; allowed: queued, starting, "),
        ("GET", "?limit=x", 400, "'x'; allowed: a whole number"),
        ("GET", "?before=-1", 400, "'-1'; allowed: a whole number"),
        ("GET", "?before=" + "9" * 30, 400, "allowed: a whole number"),
        ("GET", "/1?wait=soon", 400, "wait: 'soon'; allowed: seconds"),
        ("GET", "/1/log?tail=all", 400, "'all'; allowed: a whole number"),
        ("POST", "", 400, "not a submission"),
        ("DELETE", "", 405, ""),
    ],
)
def test_what_cannot_be_answered_is_refused(
    node: JobNode, method: str, path: str, code: int, says: str
) -> None:
    node.over(node.one("true"))
    answer = node.node.local.request(method, JOBS + path)
    assert answer.status_code == code, answer.text
    assert says in answer.json()["error"]


def test_what_never_fits_and_what_comes_after_nothing_is_refused(node: JobNode) -> None:
    answer = node.post("", body("true", after=[99999]))
    assert (answer.status_code, "there is no job 99999" in answer.text) == (400, True)
    answer = node.post("", body("true", gpus=1))
    assert (answer.status_code, "there are none here" in answer.text) == (400, True)


def test_a_large_environment_is_taken_and_a_larger_one_refused(node: JobNode) -> None:
    env = {"A": "x" * 100_000}
    assert node.over(node.one("true", env=env))["state"] == "finished"
    answer = node.post("", body("true", env={"A": "x" * (17 << 20)}))
    assert answer.status_code == 413


def test_it_is_in_the_status(node: JobNode) -> None:
    number = node.one(FOREVER)
    node.comes_to(number, "running")
    assert node.node.status()["jobs"]["counts"] == {"running": 1}


def test_jobs_are_for_the_local_socket(node: JobNode) -> None:
    number = node.one(FOREVER)
    for method, path in (
        ("POST", ""),
        ("GET", ""),
        ("GET", f"/{number}"),
        ("GET", f"/{number}/log"),
        ("POST", f"/{number}/cancel"),
        ("POST", f"/{number}/pause"),
    ):
        answer = node.node.http.request(method, JOBS + path, json=body("true"))
        assert answer.status_code == 403
        assert "local socket, or its token" in answer.json()["error"]
    assert node.job(number)["state"] in ("queued", "starting", "running")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_others_may_look_at_jobs_and_touch_only_their_own(node: JobNode) -> None:
    socket = node.node.socket
    number = node.one(FOREVER)
    socket.chmod(0o666)
    for place in (node.home.folder, socket.parent):
        place.chmod(0o755)
    program = (
        "import http.client, json, os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "def ask(method, path, content=None):\n"
        "    connection = http.client.HTTPConnection('node')\n"
        "    connection.sock = socket.socket(socket.AF_UNIX)\n"
        "    connection.sock.connect(sys.argv[1])\n"
        "    connection.request(method, '/treadle/v1/jobs' + path, content)\n"
        "    answer = connection.getresponse()\n"
        "    return answer.status, answer.read().decode()\n"
        "other = '/' + sys.argv[2]\n"
        "answers = [ask('GET', other), ask('POST', other + '/cancel'),\n"
        "    ask('POST', other + '/pause'), ask('GET', other + '/log'),\n"
        "    ask('POST', '', sys.argv[3])]\n"
        "own = '/%d' % json.loads(answers[-1][1])['ids'][0]\n"
        "ended = json.loads(ask('GET', own + '?wait=30')[1])\n"
        "log = ask('GET', own + '/log')[1]\n"
        "print(json.dumps([[a[0] for a in answers], ended['state'], ended['uid'], log]))\n"
    )
    command = [sys.executable, "-c", program, str(socket), str(number)]
    done = subprocess.run(
        [*command, json.dumps(body("id -u"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[200, 403, 403, 403, 201], "finished", 65534, "65534\n"]


def test_with_the_token_jobs_are_for_tcp_as_well(start_node: StartNode) -> None:
    node = ready(start_node(f'[http]\ntoken = "{TOKEN}"\n'))
    asked = {"Authorization": f"Bearer {TOKEN}"}
    answer = node.node.http.post(JOBS, json=body("id -u"), headers=asked)
    assert answer.status_code == 201
    (number,) = answer.json()["ids"]
    assert node.node.http.get(f"{JOBS}/{number}?wait=30", headers=asked).json()["exit_code"] == 0
    assert node.node.http.post(JOBS, json=body("true")).status_code == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert node.node.http.get(f"{JOBS}/{number}", headers=wrong).status_code == 401
    assert node.over(number)["uid"] == os.geteuid()


def test_commands_do_what_they_say(start_node: StartNode) -> None:
    node = ready(start_node(""))
    home = node.home
    done = home.treadle("submit", "--wait", "--clean-env", "--", "sh", "-c", "echo hi; kill -9 $$")
    assert (done.returncode, done.stdout) == (128 + 9, "job 1\n")
    assert done.stderr == "job 1 failed: signal 9\n"
    assert home.treadle("logs", "-f", "1").stdout == "hi\n"
    assert home.treadle("wait", "1").returncode == 128 + 9
    assert home.treadle("submit", "--array", "0-2", "--", "sleep", "1000").stdout == "jobs 2-4\n"
    timed_out = home.treadle("wait", "--timeout", "0.1", "2")
    assert (timed_out.returncode, "job 2 is " in timed_out.stderr) == (124, True)
    assert home.treadle("pause", "2").stdout == "job 2 is being paused\n"
    assert home.treadle("resume", "2").stdout == "job 2 goes on\n"
    node.comes_to(2, "running")
    table = home.treadle("jobs").stdout
    assert "sleep[0]" in table
    assert home.treadle("cancel", "2-4").stdout.count("\n") == 3
    for number in (2, 3, 4):
        node.over(number)
    missing = home.treadle("cancel", "17")
    assert (missing.returncode, "there is no job 17" in missing.stderr) == (1, True)
    shown = home.treadle("show", "1").stdout
    assert "signal 9" in shown
    assert "failed" in shown


def test_a_client_that_hangs_up_while_it_follows_does_no_harm(node: JobNode) -> None:
    number = node.one(f"echo first; {FOREVER}")
    for _ in range(3):
        with (
            httpx.Client(
                transport=httpx.HTTPTransport(uds=str(node.node.socket)), base_url="http://node"
            ) as client,
            client.stream("GET", f"{JOBS}/{number}/log?follow=1") as answer,
        ):
            next(answer.iter_bytes())
    assert node.job(number)["state"] == "running"
