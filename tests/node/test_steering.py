"""Knobs turned by latencies: on the pages, and through a node."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle.cli.exits import Exit
from treadle.monitor.latency import LatencyAddress, LatencyRing, parse_latency_address
from treadle.node.steering import Steered, Steering, SteeringMetrics
from treadle.turnstile import Turnstile
from treadle.turnstile.page import PAGE_BYTES, SEATED, Page, new_page
from treadle.types import LatencyKind, LatencyWindow, Priority

from .conftest import MakeHome, StartNode
from .nodes import Home, RunningNode, wait_until
from .test_services import free_port, table

ROOT = Path(__file__).parents[2]
FAKES = {"TREADLE_DEVICES": "tests.monitor.fakes:two", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
F_OFD_SETLK = 37
GPU, OTHER = "GPU-0000", "GPU-0001"
ADDRESS = parse_latency_address("http://127.0.0.1:1/metrics request_seconds")


class Pages:
    """Latencies as a test says."""

    def __init__(self) -> None:
        self.windows: dict[str, LatencyWindow] = {}
        self.followed: dict[str, float] = {}
        self.closed = False

    def follow(self, task: str, address: LatencyAddress, objective_seconds: float) -> None:
        self.followed[task] = objective_seconds

    def forget(self, task: str) -> None:
        del self.followed[task]

    def latest(self, task: str) -> LatencyWindow | None:
        return self.windows.get(task)

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = Pages()
        self.steering = Steering({GPU: 0.01, OTHER: 0.01}, folder, self.pages)  # type: ignore[arg-type]
        self.now = 100.0

    def steps(self, seconds: float) -> None:
        for number in range(round(seconds / 0.05)):
            self.now += 0.05
            self.steering.step(self.now, look=number % 10 == 0)

    def late(self, task: str, seconds: float, late: int) -> None:
        """So many of each second's 100 requests are late."""
        for _ in range(round(seconds)):
            window = LatencyWindow(
                at=self.now,
                window_seconds=1.0,
                kind=LatencyKind.SAMPLES,
                count=100,
                over=(late, late),
                near=(late, late),
                p99_seconds=0.02 if late > 1 else 0.001,
            )
            self.pages.windows[task] = window
            self.steps(1.0)

    def knob(self, name: str, uuid: str = GPU) -> int:
        with Turnstile.open(self.folder, uuid) as page:
            return page.snapshot().knobs[name]

    def gpu(self, uuid: str = GPU) -> dict[str, Any]:
        return next(told for told in self.steering.told() if told["uuid"] == uuid)


@contextmanager
def seated(file: Path) -> Iterator[None]:
    """A page at which a background program sits: its lock is ours."""
    file.write_bytes(new_page(file.name))
    with file.open("r+b") as opened:
        page = Page.from_buffer(mmap.mmap(opened.fileno(), PAGE_BYTES))
        seat = page.record[0]
        seat.state, seat.pid, seat.name = SEATED, os.getpid(), b"train#7"
        seat.class_ = Priority.BACKGROUND
        page.members[Priority.BACKGROUND] = 1
        lock = struct.pack("hh4xqqi4x", fcntl.F_WRLCK, os.SEEK_SET, Page.record.offset, 1, 0)
        fcntl.fcntl(opened, F_OFD_SETLK, lock)
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    Turnstile.open(tmp_path, OTHER).close()
    with seated(tmp_path / GPU):
        yield world
    world.steering.close()
    assert world.pages.closed


def task(name: str = "chat", gpus: tuple[str, ...] = (GPU,), p99: float = 0.01) -> Steered:
    return Steered(
        name=name, priority=Priority.CRITICAL, p99_seconds=p99, address=ADDRESS, gpus=gpus
    )


def test_a_missed_objective_takes_budget_away_on_its_gpu_alone(world: World) -> None:
    before = world.knob("budget_ns")
    world.steering.follow([task()])
    world.late("chat", 5, late=30)
    assert world.knob("budget_ns") < before
    assert world.knob("budget_ns", OTHER) == before
    (objective,) = world.gpu()["objectives"]
    assert objective["missed"] >= 30
    assert [*objective["neighbours"]] == [f"train#7 ({os.getpid()})"]
    assert world.gpu(OTHER)["objectives"] == []


def test_a_model_served_here_is_steered_by_its_own_latencies(world: World) -> None:
    before, ring = world.knob("budget_ns"), LatencyRing()
    steered = Steered(
        name="model m", priority=Priority.CRITICAL, p99_seconds=0.01, ring=ring, gpus=(GPU,)
    )
    world.steering.follow([steered])
    assert world.pages.followed == {}
    for _ in range(30):
        ring.put(0.05, world.now + 0.01)
        world.steps(0.05)
    assert world.knob("budget_ns") < before
    (objective,) = world.gpu()["objectives"]
    assert objective["missed"] == objective["requests"] >= 25


def test_what_people_have_set_stays_while_nothing_is_decided(world: World) -> None:
    with Turnstile.open(world.folder, GPU) as page:
        page.set_knob("budget_ns", 123_000)
    world.steps(2.0)
    assert world.knob("budget_ns") == 123_000


def test_tasks_come_and_go(world: World) -> None:
    world.steering.follow([task("a"), task("b", p99=0.5)])
    assert world.pages.followed == {"a": 0.01, "b": 0.5}
    world.steps(0.1)
    assert {one["task"] for one in world.gpu()["objectives"]} == {"a", "b"}
    world.steering.follow([task("b", p99=0.2)])
    assert world.pages.followed == {"b": 0.2}
    world.steps(0.1)
    assert [one["p99_seconds"] for one in world.gpu()["objectives"]] == [0.2]


def test_a_gpu_without_a_page_is_decided_for_and_nothing_is_made_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.steering.follow([task()])
    world.late("chat", 3, late=30)
    assert world.gpu()["trouble"] == ""
    assert list(tmp_path.iterdir()) == []
    world.steering.close()


def test_a_page_that_cannot_be_used_is_told_and_the_others_go_on(world: World) -> None:
    (world.folder / GPU).write_bytes(b"nonsense")
    world.steering.follow([task(), task("other", (OTHER,))])
    world.steps(1.0)
    assert "too short" in world.gpu()["trouble"]
    assert world.gpu(OTHER)["trouble"] == ""


def test_every_knob_is_a_metric_with_its_unit(world: World) -> None:
    world.steps(0.1)
    families = {f.name: f for f in SteeringMetrics(world.steering.told).collect()}
    knobs = {
        (s.labels["gpu"], s.labels["knob"]): (s.labels["unit"], s.value)
        for s in families["treadle_knob"].samples
    }
    assert knobs[GPU, "budget_seconds"] == ("s", 0.0005)
    assert knobs[OTHER, "duty_fraction"] == ("fraction", 0.01)


def objectives(node: RunningNode) -> list[dict[str, Any]]:
    return [one for gpu in node.status()["jobs"]["control"] for one in gpu["objectives"]]


def server(port: int) -> str:
    command = f'["{sys.executable}", "latencies.py", "{port}"]'
    url = f"http://127.0.0.1:{port}/metrics request_seconds"
    return table("chat", command, port=port, p99_seconds=0.01, latency_from=url, memory="1GiB")


def test_a_service_is_steered_by_what_it_tells(start_node: StartNode) -> None:
    node = start_node(server(free_port()), environment=FAKES)
    wait_until(lambda: any(one["requests"] for one in objectives(node)), "requests are counted")
    (told,) = objectives(node)
    assert (told["task"], told["p99_seconds"], told["missed"]) == ("chat", 0.01, 0)
    assert "P99 10 ms" in node.home.treadle("status").stdout
    text = node.http.get("/metrics").text
    assert 'treadle_objective_requests_total{gpu="FAKE-0",task="chat"}' in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--p99", "0.01"), "--p99 and --latency-from belong together"),
        (("--latency-from", "http://h/m x_seconds"), "--p99 and --latency-from belong together"),
    ],
)
def test_half_an_objective_is_none(
    make_home: MakeHome, options: tuple[str, str], message: str
) -> None:
    done = make_home().treadle("run", *options, "--", "true")
    assert done.returncode == Exit.FAILED
    assert message in done.stderr


def ran(home: Home, address: str) -> tuple[int, str]:
    done = home.treadle("run", "--p99", "0.01", "--latency-from", address, "--", "echo", "ran")
    assert done.returncode or done.stdout == "ran\n"
    return done.returncode, done.stderr


def test_without_a_node_a_program_runs_and_nobody_steers_by_it(make_home: MakeHome) -> None:
    code, errors = ran(make_home(), "http://127.0.0.1:1/metrics request_seconds")
    assert code == 0
    assert "nobody steers by --p99" in errors


def test_an_objective_that_is_none_is_refused(start_node: StartNode) -> None:
    node = start_node("", environment=FAKES)
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    code, errors = ran(node.home, "nowhere")
    assert code == Exit.FAILED
    assert "not an objective" in errors
    assert ran(node.home, "http://127.0.0.1:1/metrics request_seconds")[0] == 0


def test_a_job_shows_its_progress_and_the_knobs_of_its_gpu(
    start_node: StartNode, tmp_path: Path
) -> None:
    """The reports go to the turnstiles' folder, as those of programs under ``treadle run`` do."""
    node = start_node("", environment=FAKES | {"TREADLE_TURNSTILE_DIR": str(tmp_path / "t")})
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    script = "import time, treadle; treadle.report(samples=64, loss=0.5); time.sleep(1000)"
    submitted = node.home.treadle(
        "submit", "--memory", "1GiB", "--priority", "critical", "--", sys.executable, "-c", script
    )
    assert submitted.stdout == "job 1\n"
    url = "/treadle/v1/jobs/1"
    wait_until(lambda: node.local.get(url).json().get("progress") or {}, "it has reported")
    told = node.local.get(url).json()["progress"]
    assert (told["samples"], told["loss"]) == (64.0, 0.5)
    shown = node.home.treadle("show", "1").stdout
    assert "64 samples" in shown
    assert "loss 0.5" in shown
    assert "budget_seconds" in shown
    assert "5e-05 to 0.01" in shown


def test_modes_are_shown_and_changed_by_number(start_node: StartNode) -> None:
    node = start_node("", environment=FAKES)
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    shown = node.home.treadle("mode").stdout
    assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
        ["0", "FAKE-0", "turns"],
        ["1", "FAKE-1", "turns"],
    ]
    for arguments, message in (
        (("0", "sideways"), "'sideways' is no mode; allowed: turns, parallel"),
        (("7",), "there is no GPU 7; there are: 0, 1"),
        (("0", "parallel"), "parallel mode cannot be had"),
    ):
        done = node.home.treadle("mode", *arguments)
        assert done.returncode == Exit.FAILED
        assert message in done.stderr
    assert node.home.treadle("mode", "1", "turns").returncode == 0


def test_a_node_without_gpus_has_no_modes(start_node: StartNode) -> None:
    node = start_node("")
    wait_until(lambda: not node.status()["jobs"]["trouble"], "the queue is open")
    assert node.home.treadle("mode").stdout == "the node sees no GPU\n"
