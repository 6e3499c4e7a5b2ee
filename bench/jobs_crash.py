"""Kills a node with SIGKILL at random moments under load, and looks what became of its jobs.

``python bench/jobs_crash.py --kills 200`` starts a node, submits, pauses, resumes and cancels jobs,
kills the node in the middle of it, starts it again, and so on. At the end every job has to be over
as its program and its cancels say, exactly once: each writes a line when it begins and one when it
ends. The exit status is 1 if one is not.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct
from rich.console import Console

from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.results import Machine, date_now, save

_RESULTS = Path(__file__).resolve().parent / "results" / "jobs_crash.json"
_JOBS = "/treadle/v1/jobs"
_DEADLINE_SECONDS = 120.0
_MOST_OPEN = 40
"""So many jobs may wait or run: a machine with few cores has to come after."""
_SCRIPT = 'f="$OUT/${TREADLE_JOB%.*}"; echo "begin $TREADLE_JOB" >> "$f"; sleep $1; '
_SCRIPT += 'echo "end $TREADLE_JOB" >> "$f"; exit $2'


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of the jobs."""

    kills: int
    accepted: int
    """Jobs whose submission was answered."""
    unanswered: int
    """Jobs that were there though nobody was told so."""
    states: dict[str, int]
    seconds: float
    wrong: list[str]
    """What must not be, in words."""


class Results(Struct, frozen=True, kw_only=True):
    """The document."""

    format: int = 1
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    seed: int
    outcome: Outcome


class Crashes:
    """A node that is killed again and again, and who uses it meanwhile."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._out = folder / "out"
        self._out.mkdir()
        (folder / "treadle.toml").write_text("[jobs]\nkeep = 1000000\n")
        self._accepted: dict[int, dict[str, Any]] = {}
        self._cancelled: set[int] = set()
        self._kills = 0
        self._node: subprocess.Popen[bytes] | None = None
        others = {k: v for k, v in os.environ.items() if not k.startswith("TREADLE_")}
        self._environment = {
            **others,
            "TREADLE_STATE_DIR": str(folder / "state"),
            "TREADLE_RUNTIME_DIR": str(folder / "run"),
            "TREADLE_DEVICES": "none",
        }

    def run(self, kills: int) -> Outcome:
        """Kill it so often, then let everything end."""
        began = time.monotonic()
        try:
            for _ in range(kills):
                self._start()
                self._use_and_kill()
            self._start()
            self._wait_until_open()
            jobs = self._end_all()
        finally:
            if self._node is not None:
                self._node.kill()
                self._node.wait()
        return Outcome(
            kills=self._kills,
            accepted=len(self._accepted),
            unanswered=len(jobs) - len(self._accepted),
            states=dict(Counter(job["state"] for job in jobs)),
            seconds=time.monotonic() - began,
            wrong=self._wrong(jobs),
        )

    def _client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self._folder / "run" / "node.sock"))
        return httpx.Client(transport=transport, base_url="http://node", timeout=60)

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self._folder / "run" / "node.sock")) == 0

    def _start(self) -> None:
        command = [sys.executable, "-m", "treadle.cli.main", "up", "treadle.toml", "--port", "0"]
        with (self._folder / "node.log").open("ab") as log:
            self._node = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )

    def _wait_until_open(self) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        with self._client() as client:
            while True:
                assert self._node is not None
                if self._node.poll() is not None:
                    raise RuntimeError((self._folder / "node.log").read_text()[-2000:])
                if self._is_listening() and client.get(_JOBS).status_code == httpx.codes.OK:
                    return
                if time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "node.log").read_text()[-2000:])
                time.sleep(0.01)

    def _use_and_kill(self) -> None:
        """Kill it while it starts, or while it is used."""
        assert self._node is not None
        if self._random.random() < 0.2:
            time.sleep(self._random.uniform(0.0, 1.5))
            user = None
        else:
            self._wait_until_open()
            stop = threading.Event()
            user = threading.Thread(target=self._use, args=(stop, self._random.random()))
            user.start()
            time.sleep(self._random.uniform(0.0, 0.7))
        self._node.kill()
        self._kills += 1
        self._node.wait()
        if user is not None:
            stop.set()
            user.join()

    def _use(self, stop: threading.Event, seed: float) -> None:
        """Submit, pause, resume and cancel, until the node is gone."""
        choose = random.Random(seed)
        try:
            with self._client() as client:
                while not stop.is_set():
                    counts = client.get(f"{_JOBS}?limit=1").json()["counts"]
                    if sum(counts.values()) < _MOST_OPEN and choose.random() < 0.6:
                        self._submit(client, choose)
                    elif self._accepted:
                        recent = [*self._accepted][-_MOST_OPEN:]
                        number = choose.choice(recent)
                        what = choose.choices(["pause", "resume", "cancel"], [4, 4, 1])[0]
                        if what == "cancel":
                            self._cancelled.add(number)  # it may take effect without an answer
                        client.post(f"{_JOBS}/{number}/{what}")
        except httpx.TransportError:
            return

    def _submit(self, client: httpx.Client, choose: random.Random) -> None:
        code = choose.choice([0, 0, 0, 3])
        after = [choose.choice([*self._accepted][-5:])] if self._accepted else []
        job = {
            "command": ["sh", "-c", _SCRIPT, "sh", f"{choose.uniform(0, 0.3):.3f}", str(code)],
            "name": f"exit{code}",
            "env": {"PATH": os.environ["PATH"], "OUT": str(self._out)},
            "share": 0,
            "after": after if choose.random() < 0.2 else [],
        }
        array = [*range(choose.randint(1, 4))]
        answer = client.post(_JOBS, json={"job": job, "array": array})
        if answer.status_code == httpx.codes.CREATED:
            self._accepted |= dict.fromkeys(answer.json()["ids"], job)

    def _end_all(self) -> list[dict[str, Any]]:
        """Let all go on that is held, and wait for all; returns the jobs."""
        with self._client() as client:
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while time.monotonic() < deadline:
                answer = client.get(f"{_JOBS}?limit=10000&states=queued,starting,running,paused")
                listed = answer.json()["jobs"]
                if not listed:
                    break
                for job in listed:
                    if job["held"]:
                        client.post(f"{_JOBS}/{job['id']}/resume")
                time.sleep(0.05)
            jobs: list[dict[str, Any]] = []
            while page := client.get(
                f"{_JOBS}?limit=10000" + (f"&before={jobs[-1]['id']}" if jobs else "")
            ).json()["jobs"]:
                jobs += page
        return jobs

    def _wrong(self, jobs: list[dict[str, Any]]) -> list[str]:
        states = {job["id"]: job["state"] for job in jobs}
        missing = self._accepted.keys() - states.keys()
        wrong = [f"job {number} was accepted and is not there" for number in missing]
        for job in jobs:
            wrong += [f"job {job['id']} {text}" for text in self._wrong_of(job, states)]
        return wrong + self._left()

    def _wrong_of(self, job: dict[str, Any], states: dict[int, str]) -> list[str]:
        wrong, state = [], job["state"]
        file = self._out / str(job["id"])
        lines = file.read_text().splitlines() if file.exists() else []
        begun, ended = (sum(line.startswith(word) for line in lines) for word in ("begin", "end"))
        if begun > 1 or ended > 1:
            wrong.append(f"ran more than once: {lines}")
        code = int(job["name"].removeprefix("exit"))
        failed = [n for n in job["spec"].get("after", []) if states.get(n) != "finished"]
        if state == "cancelled":
            if not failed and job["id"] not in self._cancelled:
                wrong.append(f"is cancelled, and nobody wanted that: {job['reason']}")
        elif state != ("finished" if code == 0 else "failed") or job["exit_code"] != code:
            wrong.append(f"is {state} ({job['reason']}), its program exits with {code}")
        elif (begun, ended) != (1, 1):
            wrong.append(f"is {state} and wrote {lines}")
        return wrong

    def _left(self) -> list[str]:
        """Processes of jobs that are still there, stopped or not."""
        mark, left = f"OUT={self._out}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    left.append(f"process {entry.name} is left, in state {state}")
            except OSError:
                continue
        return left


def crash(kills: int, seed: int) -> Outcome:
    """Kill a node so often; what became of its jobs."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder, warnings.catch_warnings():
        # The HTTP library forgets to close a socket that finds no node.
        warnings.simplefilter("ignore", ResourceWarning)
        outcome = Crashes(Path(folder), seed).run(kills)
        gc.collect()
        return outcome


def main() -> int:
    """Run it; give the exit status."""
    parser = argparse.ArgumentParser(description="Kill a node under load, again and again.")
    parser.add_argument("--kills", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    date, machine = date_now(), describe_machine()
    outcome = crash(arguments.kills, arguments.seed)
    results = Results(
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        seed=arguments.seed,
        outcome=outcome,
    )
    save(results, arguments.output)
    console = Console()
    console.print(
        f"{outcome.kills} kills in {outcome.seconds:.0f} s; {outcome.accepted} jobs accepted, "
        f"{outcome.unanswered} more whose answer was lost; {outcome.states}",
        highlight=False,
    )
    for text in outcome.wrong:
        console.print(text, highlight=False)
    console.print(f"{len(outcome.wrong)} wrong", highlight=False)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
