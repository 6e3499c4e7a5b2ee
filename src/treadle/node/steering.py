"""Turns the knobs of every GPU: 20 times a second, one controller each, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from treadle.monitor.gate import GatePage
from treadle.monitor.latency import LatencyAddress, LatencyRing, LatencyScraper
from treadle.schedule.control import (
    Controller,
    GateView,
    Knobs,
    Observation,
    TaskLatency,
    page_values,
)
from treadle.turnstile import Turnstile, TurnstileError
from treadle.turnstile.folder import page_file
from treadle.types import LatencyWindow, Objective, Priority

_log = logging.getLogger("treadle.control")
STEP_SECONDS = 0.05
_LOOK_STEPS = 10
"""How many steps between two looks at who sits at a turnstile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A task with an objective, and where its latencies are told."""

    name: str
    priority: Priority
    p99_seconds: float
    address: LatencyAddress | None = None
    ring: LatencyRing | None = None
    """Where this process itself answers the requests."""
    gpus: tuple[str, ...]
    """UUIDs of those that it is on."""


@dataclass(slots=True)
class _Gpu:
    """What is kept of one GPU."""

    uuid: str
    knobs: Knobs
    controller: Controller
    page: GatePage | None = None
    written: dict[str, int] = field(default_factory=dict)
    neighbours: tuple[str, ...] | None = None
    pids: frozenset[int] = frozenset()
    """Of who sits there."""
    trouble: str = ""


class Steering:
    """The controllers of a node."""

    def __init__(
        self, gpus: Mapping[str, float], folder: Path, scraper: LatencyScraper | None = None
    ) -> None:
        """Prepare.

        Args:
            gpus: UUIDs, with the least share of time that lower work gets there.
            folder: Of the turnstiles.
            scraper: Reads latencies; closed at the end.
        """
        self._folder = folder
        self._gpus = []
        for uuid, duty in gpus.items():
            knobs = Knobs()
            controller = Controller(uuid, knobs, minimum_duty_fraction=duty)
            usual = page_values(controller.last.settings)
            self._gpus.append(_Gpu(uuid, knobs, controller, written=usual))
        self._lock = threading.Lock()
        self._tasks: tuple[Steered, ...] = ()
        self._looked_at: dict[str, float] = {}
        self._scraper = scraper or LatencyScraper()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Leave every knob as it is."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._scraper.close()

    def follow(self, tasks: Iterable[Steered]) -> None:
        """Steer by these tasks from now on, and by no others."""
        after = {task.name: task for task in tasks}
        before = {task.name: task for task in self._tasks}
        for name in before.keys() - after.keys():
            self._scraper.forget(name)
        for name, task in after.items():
            was = before.get(name)
            same = was is not None and (was.address, was.p99_seconds) == (
                task.address,
                task.p99_seconds,
            )
            if task.address is not None and not same:
                self._scraper.follow(name, task.address, task.p99_seconds)
        with self._lock:
            self._tasks = tuple(after.values())

    def where(self, pids: Iterable[int]) -> tuple[str, ...]:
        """The GPUs at whose turnstiles any of these processes sit."""
        wanted = frozenset(pids)
        with self._lock:
            return tuple(gpu.uuid for gpu in self._gpus if gpu.pids & wanted)

    def told(self) -> list[dict[str, Any]]:
        """What the status tells of each GPU."""
        with self._lock:
            return [_told(gpu) for gpu in self._gpus]

    def _run(self) -> None:
        due, steps = time.monotonic(), 0
        while not self._stop.is_set():
            now = time.monotonic()
            self.step(now, look=steps % _LOOK_STEPS == 0)
            steps += 1
            due = max(due + STEP_SECONDS, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def step(self, now: float, *, look: bool) -> None:
        """One step of every controller; at some they look at who sits at the turnstiles."""
        for gpu in self._gpus:
            try:
                with self._lock:
                    self._step(gpu, now, look=look)
                if look:  # what is wrong with a page is seen then
                    gpu.trouble = ""
            except (TurnstileError, OSError) as error:
                self._complain(gpu, str(error))
            except Exception:  # one GPU's trouble must not leave the others unsteered
                self._complain(gpu, "an unexpected error; see the log")
                _log.exception("the controller of %s failed", gpu.uuid)

    def _step(self, gpu: _Gpu, now: float, *, look: bool) -> None:
        tasks = [task for task in self._tasks if gpu.uuid in task.gpus]
        if look:
            self._look(gpu)
        busy = None
        if gpu.page is not None:
            busy = gpu.page.read(time.monotonic_ns()).busy
        observation = Observation(
            tasks=tuple(
                TaskLatency(
                    task=task.name,
                    priority=task.priority,
                    objective=Objective(p99_seconds=task.p99_seconds),
                    latency=self._latency(task, now),
                )
                for task in tasks
            ),
            gate=GateView(critical_busy_fraction=busy),
            neighbours=gpu.neighbours,
        )
        wanted = page_values(gpu.controller.step(observation, now))
        # Only what was decided anew is written: what people have set stays until then.
        changed = {name: value for name, value in wanted.items() if gpu.written[name] != value}
        if changed and gpu.page is not None:
            with Turnstile.open(self._folder, gpu.uuid, create=False) as turnstile:
                for name, value in changed.items():
                    turnstile.set_knob(name, value)
            gpu.written |= changed

    def _latency(self, task: Steered, now: float) -> LatencyWindow:
        if task.ring is None:
            return self._scraper.latest(task.name)
        after = self._looked_at.get(task.name, now - STEP_SECONDS)
        self._looked_at[task.name] = now
        return task.ring.window(after, now, task.p99_seconds)

    def _look(self, gpu: _Gpu) -> None:
        """See who sits there, and whether the page is still the same."""
        path = page_file(self._folder, gpu.uuid)
        try:
            inode = path.stat().st_ino
        except FileNotFoundError:
            gpu.page, gpu.neighbours, gpu.pids = None, (), frozenset()  # nobody has come yet
            return
        if gpu.page is None or gpu.page.inode != inode:
            gpu.page = GatePage(path)
        with Turnstile.open(self._folder, gpu.uuid, create=False) as turnstile:
            members = turnstile.snapshot().members
        gpu.pids = frozenset(member.pid for member in members)
        urgent = {task.name for task in self._tasks}
        gpu.neighbours = tuple(
            f"{m.name} ({m.pid})"
            for m in members
            if m.priority is Priority.BACKGROUND and m.name.partition("#")[0] not in urgent
        )

    def _complain(self, gpu: _Gpu, reason: str) -> None:
        if gpu.trouble != reason:
            _log.error("GPU %s is not steered: %s", gpu.uuid, reason)
        gpu.trouble = reason


def _told(gpu: _Gpu) -> dict[str, Any]:
    report = gpu.controller.report()
    last = report.last_change or report.last
    return {
        "uuid": gpu.uuid,
        "trouble": gpu.trouble,
        "action": last.action.value,
        "reason": last.reason,
        "level": report.last.level,
        "knobs": [
            {
                "name": knob.name,
                "unit": knob.unit,
                "least": knob.least,
                "most": knob.most,
                "value": report.last.settings.get(knob.name, knob.usual),
                "owner": knob.owner,
                "help": knob.help,
            }
            for knob in gpu.knobs
        ],
        "objectives": [
            {
                "task": task.task,
                "p99_seconds": task.objective_seconds,
                "standing": str(task.standing.value),
                "words": task.words,
                "impossible": task.impossible,
                "requests": task.misses.requests,
                "missed": task.misses.over,
                "neighbours": dict(task.misses.beside),
            }
            for task in report.tasks
        ],
    }


class SteeringMetrics(Collector):
    """Knobs and objectives as Prometheus takes them."""

    def __init__(self, told: Callable[[], list[dict[str, Any]]]) -> None:
        self._told = told

    def collect(self) -> Sequence[GaugeMetricFamily | CounterMetricFamily]:
        knob = GaugeMetricFamily(
            "treadle_knob", "A knob of a GPU, in its unit.", labels=("gpu", "knob", "unit")
        )
        requests = CounterMetricFamily(
            "treadle_objective_requests",
            "Requests that were held against the objective.",
            labels=("gpu", "task"),
        )
        missed = CounterMetricFamily(
            "treadle_objective_missed",
            "Requests that took longer than the objective allows.",
            labels=("gpu", "task"),
        )
        for gpu in self._told():
            for one in gpu["knobs"]:
                knob.add_metric((gpu["uuid"], one["name"], one["unit"]), one["value"])
            for task in gpu["objectives"]:
                requests.add_metric((gpu["uuid"], task["task"]), task["requests"])
                missed.add_metric((gpu["uuid"], task["task"]), task["missed"])
        return [knob, requests, missed]
