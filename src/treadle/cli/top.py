"""``treadle top``: every GPU and who is on it, again and again or once."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from treadle.cli.topview import Frame, Goodput, Queue, Sort, Task, View, render
from treadle.client.readings import NodeReadings, NoReadingsError, Readings, ask
from treadle.devices.device import DeviceEvent
from treadle.errors import TreadleError
from treadle.monitor import AUTO, Monitor, MonitorSnapshot, finder
from treadle.monitor.energy import EnergyBook, samples_per_watt_hour
from treadle.monitor.ring import Samples
from treadle.node.paths import socket_path
from treadle.progress import Progress, read_all
from treadle.turnstile import Member, Turnstile, TurnstileError, default_folder
from treadle.types import Priority

_REFRESH_SECONDS = 0.5
_NODE_SECONDS = 2.0
_SPARKS = {"sm_activity": 12, "gpu_utilization": 12, "cpu_utilization": 12, "power": 12}
_START_SECONDS = 60.0
_FIRST_READINGS_SECONDS = 1.0


def find_devices_by() -> str:
    """What finds the devices here: ``TREADLE_DEVICES``, or treadle's own."""
    return finder(os.environ.get("TREADLE_DEVICES", AUTO))


def run(*, once: bool, devices: str | None = None) -> None:
    """Show what there is until ``q`` is pressed, or one frame; only that where nobody can press.

    Raises:
        TreadleError: If no device can be read.
    """
    console = Console(highlight=False)
    with NodeOrOwn(devices) as readings:
        wait_for_devices(readings)
        collector = Collector(readings)
        if once or not console.is_terminal:
            time.sleep(_FIRST_READINGS_SECONDS)  # for what is read in the first turn
            console.print(render(collector.frame(), View(), console.width))
            return
        view = View()
        with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(render(collector.frame(), view, console.width), refresh=True)
                key = keys.read(_REFRESH_SECONDS)
                if key == "q":
                    return
                view = pressed(view, key)


def pressed(view: View, key: str) -> View:
    """The view after a key: ``s`` takes the next order, ``f`` the next class."""
    if key == "s":
        orders = list(Sort)
        return replace(view, sort=orders[(orders.index(view.sort) + 1) % len(orders)])
    if key == "f":
        classes = [None, *Priority]
        return replace(view, only=classes[(classes.index(view.only) + 1) % len(classes)])
    return view


class NodeOrOwn:
    """The readings of the running node; those of a monitor of one's own where that is not to be."""

    def __init__(self, devices: str | None = None) -> None:
        """Find them. Devices that are named are looked for here, whatever a node reads."""
        self._devices = devices
        self._own: Monitor | None = None
        self._node: NodeReadings | None = None
        if devices is None:
            with contextlib.suppress(NoReadingsError):
                choice = os.environ.get("TREADLE_DEVICES", AUTO)
                self._node = NodeReadings(socket_path(), choice)

    @property
    def are_own(self) -> bool:
        """Whether no node's readings are looked at."""
        return self._node is None

    def snapshot(self) -> MonitorSnapshot:
        if self._node is not None:
            try:
                return self._node.snapshot()
            except NoReadingsError:  # the node has ended
                self._node = None
        return self._monitor.snapshot()

    def history(self, uuid: str, metric: str, seconds: float = 60.0) -> Samples:
        return (self._node or self._monitor).history(uuid, metric, seconds)

    def events(self, after: int = 0) -> tuple[int, Sequence[DeviceEvent]]:
        return (self._node or self._monitor).events(after)

    @property
    def _monitor(self) -> Monitor:
        if self._own is None:
            self._own = Monitor(self._devices or find_devices_by())
            self._own.start()
        return self._own

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._own is not None:
            self._own.close()


class Collector:
    """Puts together what a frame shows."""

    def __init__(self, monitor: Readings) -> None:
        self._monitor = monitor
        self._before: dict[tuple[str, int, int], float] = {}
        self._before_at = 0.0
        self._energy: EnergyBook[tuple[str, int, int]] = EnergyBook()
        self._first: dict[int, Progress] = {}
        self._queues: Sequence[Queue] | None = None
        self._queues_at = float("-inf")

    def frame(self) -> Frame:
        snapshot = self._monitor.snapshot()
        if snapshot.at - self._queues_at > _NODE_SECONDS:
            self._queues, self._queues_at = _queues(), snapshot.at
        history = {
            (device.info.uuid, metric): self._buckets(device.info.uuid, metric, parts, snapshot.at)
            for device in snapshot.devices
            for metric, parts in _SPARKS.items()
            if metric in device.readings
        }
        tasks = self._tasks(snapshot)
        return Frame(
            snapshot=snapshot,
            tasks=tasks,
            joules={d.info.uuid: self._energy.joules(d.info.uuid) for d in snapshot.devices},
            queues=self._queues,
            events=self._monitor.events()[1],
            history=history,
        )

    def _tasks(self, snapshot: MonitorSnapshot) -> list[Task]:
        now, tasks, work = snapshot.at, [], {}
        elapsed, progress = now - self._before_at, read_all(default_folder())
        for view in snapshot.devices:
            uuid, members = view.info.uuid, _members(view.info.uuid)
            here = {(uuid, m.index, m.generation): m.gpu_seconds for m in members}
            self._energy.look(view, here, now)
            for member, key in zip(members, here, strict=True):
                share = None
                if key in self._before and elapsed > 0:
                    share = max(0.0, here[key] - self._before[key]) / elapsed
                goodput = self._goodput(progress.get(member.pid), self._energy.tasks.get(key))
                tasks.append(
                    Task(device=view.info.index, member=member, share=share, goodput=goodput)
                )
            work.update(here)
        self._before, self._before_at = work, now
        return tasks

    def _goodput(self, progress: Progress | None, joules: float | None) -> Goodput | None:
        """Samples of a task since it was first seen here; None if it reports none."""
        if progress is None:
            return None
        first = self._first.setdefault(progress.pid, progress)
        samples, seconds = progress.samples - first.samples, progress.last_at - first.last_at
        return Goodput(
            samples_per_second=samples / seconds if seconds > 0 else None,
            samples_per_watt_hour=samples_per_watt_hour(samples, joules),
        )

    def _buckets(self, uuid: str, metric: str, parts: int, now: float) -> list[float | None]:
        """Means of equal parts of the last minute."""
        samples = self._monitor.history(uuid, metric)
        sums, counts = [0.0] * parts, [0] * parts
        for at, value, reason in zip(
            samples["at"].tolist(), samples["value"].tolist(), samples["reason"].tolist(),
            strict=True,
        ):  # fmt: skip
            part = parts - 1 - int((now - at) / 60.0 * parts)
            if not reason and 0 <= part < parts:
                sums[part] += value
                counts[part] += 1
        return [s / n if n else None for s, n in zip(sums, counts, strict=True)]


def _members(uuid: str) -> Sequence[Member]:
    """Who sits at the turnstile of a device: nobody where nobody has come yet."""
    try:
        with Turnstile.open(default_folder(), uuid, create=False) as page:
            return page.snapshot().members
    except TurnstileError:
        return ()


def wait_for_devices(monitor: Readings) -> None:
    """Wait until the devices were looked for.

    Raises:
        TreadleError: If none can be read.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        snapshot = monitor.snapshot()
        if snapshot.devices or not snapshot.trouble:
            return
        if snapshot.restarts or time.monotonic() > deadline:
            raise TreadleError(snapshot.trouble or "there are no devices")
        time.sleep(0.02)


def _queues() -> list[Queue] | None:
    """Who waits in the running node; None if none is running."""
    try:
        status = ask("/treadle/v1/status", socket_path())
    except (ConnectionError, TimeoutError, TreadleError):
        return None
    return [
        Queue(
            model=model["name"],
            priority=model["priority"],
            state=model["state"].lower(),
            waiting=model["waiting"],
        )
        for model in status["models"]
    ]


class _Keys:
    """Keys as they are pressed; none where standard input is no terminal."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def read(self, seconds: float) -> str:
        if self._descriptor is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return os.read(self._descriptor, 1).decode(errors="replace") if ready else ""


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
