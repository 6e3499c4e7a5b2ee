"""Keeps the helper running, and tells what it reads.

The driver may hang, and then a thread that asked it can never be ended: so a process asks it, and
this watches that process.
"""

from __future__ import annotations

import collections
import os
import select
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.clock import Clock, SystemClock
from treadle.devices.device import DeviceEvent, Severity
from treadle.monitor.directory import EVENTS, Happened, Setup, SourceEntry, Started, StartFailed
from treadle.monitor.helper import Helper
from treadle.monitor.ring import Reader, RingError, Samples
from treadle.monitor.snapshot import MonitorSnapshot, recent, views
from treadle.turnstile import default_folder

AUTO = "auto"
_FIND_DEVICES = "treadle.devices.find:find_devices"


def finder(choice: str) -> str:
    """What finds the devices: ``auto`` is treadle's own, all else says ``module:function``."""
    return _FIND_DEVICES if choice in ("", AUTO) else choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long the monitor waits for what."""

    hang_seconds: float = 2.0
    """A read that takes longer hangs."""
    start_seconds: float = 30.0
    """To find the devices: the first look at a driver may load it."""
    look_seconds: float = 0.2
    """How often the monitor looks after its helper."""
    first_backoff_seconds: float = 0.5
    most_backoff_seconds: float = 30.0
    healthy_seconds: float = 60.0
    """After so long without trouble, the next back-off is the first again."""
    most_hangs: int = 2
    """A source that has hung so often is left out from then on."""


class Monitor:
    """Reads all devices from ``start`` to ``close``. Methods may be called from any thread."""

    def __init__(
        self,
        devices: str = _FIND_DEVICES,
        *,
        folder: Path | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        on_event: Callable[[DeviceEvent], None] = lambda _: None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            devices: ``module:function`` that finds the devices, in the helper.
            folder: Of the turnstiles' pages.
            clock: Of the readings' time: monotonic, and the same in all processes.
            limits: How long to wait.
            on_event: Called with each event, from the monitor's thread.
        """
        self._devices, self._folder = devices, folder or default_folder()
        self._clock, self._limits = clock or SystemClock(), limits or Limits()
        self._on_event = on_event
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._descriptor: int | None = None
        self._helper: Helper | None = None
        self._trouble: Callable[[float], str] = _looking
        self._reasons: tuple[str, ...] = ()
        self._restarts = 0
        self._hangs: collections.Counter[tuple[str, str]] = collections.Counter()
        self._left_out: dict[tuple[str, str], SourceEntry] = {}
        self._events: collections.deque[DeviceEvent] = collections.deque(maxlen=1000)
        self._event_count = 0
        self._stop = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the helper. What was read last can still be looked at."""
        if self._stop.is_set():
            return
        self._stop.set()
        os.eventfd_write(self._wake, 1)
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._wake)
        self._set_trouble(lambda _: "the monitor was closed")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def snapshot(self) -> MonitorSnapshot:
        """The newest readings of every device."""
        with self._lock:
            reader, trouble, restarts = self._reader, self._trouble, self._restarts
            reasons, helper = self._reasons, self._helper
            left_out = tuple(self._left_out.values())
        now = self._clock.now()
        text = trouble(now)
        return MonitorSnapshot(
            at=now,
            devices=views(reader, now, text, left_out) if reader else (),
            reasons=reasons,
            trouble=text,
            looking=trouble is _looking,
            restarts=restarts,
            helper_pid=helper.pid if helper else None,
            left_out=left_out,
        )

    def history(self, uuid: str, metric: str, seconds: float = 60.0) -> Samples:
        """The samples of the last so many seconds, the oldest first; those without value too."""
        return recent(self.reader, uuid, metric, self._clock.now() - seconds)

    @property
    def reader(self) -> Reader | None:
        """The rings of the helper that runs, or ran last."""
        with self._lock:
            return self._reader

    @property
    def descriptor(self) -> int | None:
        """Of the memory that the helper writes its readings into; None while there is none."""
        with self._lock:
            return self._descriptor

    def events(self, after: int = 0) -> tuple[int, Sequence[DeviceEvent]]:
        """The newest events after so many, and how many there have been."""
        with self._lock:
            new = min(self._event_count - after, len(self._events))
            return self._event_count, list(self._events)[len(self._events) - new :] if new else []

    # All below belongs to the monitor's thread.

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            started = self._clock.now()
            try:
                self._helper = Helper(self._setup())
            except OSError as error:
                text = f"the sampler cannot be started: {error.strerror}"
                self._set_trouble(lambda _, text=text: text)  # type: ignore[misc]
            else:
                self._watch(self._helper)
            if self._stop.is_set():
                return
            if self._clock.now() - started > self._limits.healthy_seconds:
                failures = 0
            seconds = self._limits.first_backoff_seconds * 2**failures
            failures = min(failures + 1, 16)
            self._stop.wait(min(seconds, self._limits.most_backoff_seconds))
            with self._lock:
                self._restarts += 1

    def _setup(self) -> Setup:
        return Setup(
            socket=-1,
            memory=-1,
            devices=self._devices,
            turnstiles=str(self._folder),
            left_out=tuple(self._left_out),
        )

    def _watch(self, helper: Helper) -> None:
        """Look after a helper until it ends, or must be ended."""
        poll = select.poll()
        poll.register(helper.control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        started, reader = self._clock.now(), None
        stuck_since: float | None = None
        while not self._stop.is_set():
            poll.poll(self._limits.look_seconds * 1000)
            for message in helper.messages():
                match message:
                    case Started():
                        reader = self._begin(helper)
                    case StartFailed(reason):
                        self._give_up(helper, f"the devices cannot be read: {reason}")
                        return
                    case Happened(event):
                        self._tell(event)
                    case None:
                        self._give_up(helper, None)
                        return
            now = self._clock.now()
            if reader is not None:
                if not self._is_stuck(reader, now):
                    stuck_since = None
                elif stuck_since is None:
                    stuck_since = now
                # Seen twice: a machine that was asleep is not a helper that hangs.
                elif now - stuck_since >= self._limits.look_seconds:
                    self._end_stuck(helper, reader)
                    return
            elif now - started > self._limits.start_seconds:
                self._give_up(helper, "looking for devices takes too long: the driver hangs")
                return
        self._end(helper, by_force=False)

    def _begin(self, helper: Helper) -> Reader | None:
        try:
            reader = helper.reader()
        except RingError as error:
            text = f"the readings cannot be used: {error}"
            self._set_trouble(lambda _: text)
            return None
        with self._lock:
            self._reader, self._reasons = reader, reader.directory.reasons
            self._descriptor = helper.memory
            self._trouble = _no_trouble
        return reader

    def _end_stuck(self, helper: Helper, reader: Reader) -> None:
        """End a helper that does not move."""
        doing = reader.doing
        if doing is not None:
            self._hung(helper, reader, *doing)
        else:
            since = reader.heartbeat
            self._set_trouble(lambda now: f"the sampler has not moved for {now - since:.1f} s")
            self._end(helper)

    def _is_stuck(self, reader: Reader, now: float) -> bool:
        doing = reader.doing
        since = reader.heartbeat if doing is None else doing[1]
        return now - since > self._limits.hang_seconds

    def _hung(self, helper: Helper, reader: Reader, index: int, since: float) -> None:
        directory = reader.directory
        if index < len(directory.sources):
            entry = directory.sources[index]
        else:  # beside its figures
            uuid = directory.devices[index - len(directory.sources)].uuid
            entry = SourceEntry(uuid, EVENTS, 0.0, 0.0, ())
        name, device = entry.name, entry.device
        self._hangs[device, name] += 1
        if self._hangs[device, name] >= self._limits.most_hangs:
            with self._lock:
                self._left_out[device, name] = entry
        self._set_trouble(lambda now: f"{name} has not answered for {now - since:.1f} s")
        now = self._clock.now()
        text = f"{name} does not answer: the sampler is started again"
        self._end(helper)
        self._tell(DeviceEvent(now, device, "source-failed", Severity.ERROR, text))

    def _give_up(self, helper: Helper, reason: str | None) -> None:
        """End a helper that cannot go on; without a reason, how it ended is the reason."""
        how = self._end(helper)
        text = reason or f"the sampler {how}"
        self._set_trouble(lambda _: text)
        self._tell(DeviceEvent(self._clock.now(), "", "sampler-ended", Severity.ERROR, text))

    def _end(self, helper: Helper, *, by_force: bool = True) -> str:
        with self._lock:
            self._descriptor = None  # its number may soon be another file's
        how = helper.end(by_force=by_force)
        with self._lock:
            self._helper = None
        return how

    def _set_trouble(self, trouble: Callable[[float], str]) -> None:
        with self._lock:
            self._trouble = trouble

    def _tell(self, event: DeviceEvent) -> None:
        with self._lock:
            self._events.append(event)
            self._event_count += 1
        self._on_event(event)


def _looking(_: float) -> str:
    return "the devices are being looked for"


def _no_trouble(_: float) -> str:
    return ""
