"""Starts the processes of a daemon, finds those that were left behind, and ends its own only."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence

from treadle.devices.mps import processes
from treadle.devices.mps.control import Control
from treadle.devices.mps.health import MpsError, MpsRefusedError, MpsTimeoutError, MpsTimeouts
from treadle.devices.mps.home import PIPE_VARIABLE, Home, Record
from treadle.devices.mps.others import other_daemon
from treadle.devices.mps.processes import Process

_STAMP = "TREADLE_MPS_DAEMON"
"""In the environment of the daemons that were started here, and so of their servers."""
_GPUS = "CUDA_VISIBLE_DEVICES"
_POLL_SECONDS = 0.02


class Launcher:
    """The processes of one daemon. One thread at a time."""

    def __init__(
        self, home: Home, control: Control, gpus: Sequence[str], timeouts: MpsTimeouts
    ) -> None:
        self._home, self._control, self._timeouts = home, control, timeouts
        self._gpus = tuple(gpus)
        self._servers: set[Process] = set()
        self.process: Process | None = None
        """The daemon that was started or adopted, until it was ended."""

    def note_servers(self, pids: Sequence[int]) -> None:
        """Keep who its servers are, for the day that it is dead and cannot be asked."""
        self._servers = {server for server in self._servers if processes.lives(server)}
        for pid in pids:
            server = processes.identify(pid)
            # What the daemon says is not believed when it comes to whom to kill.
            if server and self.process and processes.is_child(pid, self.process):
                self._servers.add(server)

    def adopt(self, left: Record, attempts: int) -> bool:
        """Take a daemon over, and say whether it is the one that is wanted, and answers."""
        self.process = left.process
        for _ in range(attempts if left.gpus == self._gpus else 0):
            with contextlib.suppress(MpsError):
                self._control.numbers("get_server_list")
                self._home.remember(left)
                return True
        return False

    def left_behind(self) -> Record | None:
        """The daemon that an earlier owner has started and left.

        Raises:
            MpsError: If there is one that nobody here has started.
        """
        record, pid = self._home.recall(), self._home.pid()
        if record is not None and processes.lives(record.process):
            return record
        process = None if pid is None else processes.identify(pid)
        if process is None:
            return None
        other = other_daemon(self._home.pipe_directory)
        try:
            if processes.variable(process.pid, _STAMP) == str(self._home.folder):
                # Its owner died before it could write down whom it had started.
                gpus = processes.variable(process.pid, _GPUS) or ""
                return Record(process, tuple(filter(None, gpus.split(","))))
            theirs = processes.variable(process.pid, PIPE_VARIABLE) == str(
                self._home.pipe_directory
            )
        except PermissionError:
            theirs = other is not None
        except OSError:
            return None
        if theirs:
            what = other.reason if other else f"there is a daemon, pid {process.pid}"
            raise MpsError(f"MPS: {what}; it was not started here and is left alone")
        return None  # a number that another process has now

    def launch(self) -> None:
        """Start the daemon anew and wait until it answers.

        Raises:
            MpsError: If it does not; what was started is ended again.
        """
        end = time.monotonic() + self._timeouts.start
        try:
            self._home.furnish()
            visible = {_GPUS: ",".join(self._gpus)} if self._gpus else {}
            self._control.start({_STAMP: str(self._home.folder), **visible})
            self.process = self._wait_for_process(end)
            self._home.remember(Record(self.process, self._gpus))
            self._wait_for_answer(self.process, end)
        except BaseException:
            self.end(polite=False)
            raise

    def end(self, *, polite: bool) -> None:
        """End the daemon and its servers: asked first, then told, then killed.

        Args:
            polite: Ask first. One that does not answer is better not asked again.

        Raises:
            MpsError: If one of them cannot be killed.
        """
        daemon = self.process
        ours = self._servers | processes.started_with(_STAMP, str(self._home.folder))
        if daemon is not None:
            ours |= {daemon} | processes.children(daemon)
        if polite and daemon is not None and processes.lives(daemon):
            with contextlib.suppress(MpsError):
                self._control.ask("quit", may_refuse=True)
                processes.wait_gone(ours, self._timeouts.end)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            left = [one for one in ours if processes.lives(one)]
            for one in left:
                processes.send(one, signum)
            processes.wait_gone(left, self._timeouts.end)
        if stay := ", ".join(str(one.pid) for one in ours if processes.lives(one)):
            raise MpsError(f"MPS: processes that cannot be killed: {stay}")
        self.process, self._servers = None, set()

    def _wait_for_process(self, end: float) -> Process:
        while True:
            pid = self._home.pid()
            if pid is not None and (process := processes.identify(pid)):
                return process
            if time.monotonic() >= end:
                raise MpsError(self._no_start("started, but is not there"))
            time.sleep(_POLL_SECONDS)

    def _wait_for_answer(self, process: Process, end: float) -> None:
        while True:
            try:
                self._control.numbers("get_server_list")
                return
            except (MpsRefusedError, MpsTimeoutError) as error:  # not ready yet
                if not processes.lives(process):
                    raise MpsError(self._no_start("ended at once")) from error
                if time.monotonic() >= end:
                    raise
            time.sleep(_POLL_SECONDS)

    def _no_start(self, what: str) -> str:
        words = self._home.last_words()
        return f"MPS: the daemon {what}" + (f"; the last line of its log: {words}" if words else "")
