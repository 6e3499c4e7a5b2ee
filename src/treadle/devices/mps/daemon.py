"""An MPS control daemon of our own, through its life: started, checked, restarted, ended."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from treadle.devices.mps import processes
from treadle.devices.mps.client import ClientLimits, client_environment
from treadle.devices.mps.control import Control, find_control
from treadle.devices.mps.health import (
    MpsClient,
    MpsError,
    MpsHealth,
    MpsRefusedError,
    MpsServer,
    MpsState,
    MpsTimeouts,
)
from treadle.devices.mps.home import LOG_VARIABLE, PIPE_VARIABLE, Home
from treadle.devices.mps.launcher import Launcher

_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")
_LIVE = (MpsState.RUNNING, MpsState.FAULTED, MpsState.HUNG)


class MpsDaemon:
    """One daemon and its folder. Any thread may call; as a context manager it starts and closes.

    A daemon lives on when its owner dies without ``close``. The next owner of the folder adopts
    it, so that its clients go on.
    """

    def __init__(
        self,
        folder: Path,
        gpus: Sequence[str] = (),
        *,
        control: Path | None = None,
        timeouts: MpsTimeouts = MpsTimeouts(),  # noqa: B008  # frozen
        hung_after: int = 2,
    ) -> None:
        """Say what is wanted; nothing is started yet.

        Args:
            folder: For this daemon alone. Made if it is missing.
            gpus: UUIDs of its GPUs; none for all that there are.
            control: The control program, searched for where None.
            timeouts: How long is waited for what.
            hung_after: So many commands unanswered in a row make a daemon hung.

        Raises:
            MpsError: If there is no control program, or the folder's path is too long.
            ValueError: If ``gpus`` are not UUIDs, or ``hung_after`` is below 1.
        """
        for gpu in gpus:
            if not _UUID.fullmatch(gpu):
                raise ValueError(f"{gpu!r} is not a GPU's UUID; allowed: GPU-… or MIG-…")
        if hung_after < 1:
            raise ValueError(f"hung_after is {hung_after}; allowed: 1 and above")
        self.gpus = tuple(gpus)
        self._home = Home(folder)
        self._hung_after = hung_after
        where = {
            PIPE_VARIABLE: str(self._home.pipe_directory),
            LOG_VARIABLE: str(self._home.log_directory),
        }
        self._control = Control(control or find_control(), where, timeouts)
        self._launcher = Launcher(self._home, self._control, gpus, timeouts)
        self._life = threading.RLock()
        self._state = MpsState.ABSENT

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

    @property
    def state(self) -> MpsState:
        """As it was last seen; ``check`` looks."""
        return self._state

    @property
    def pipe_directory(self) -> Path:
        """Where clients find the daemon."""
        return self._home.pipe_directory

    def start(self) -> bool:
        """Start it, or adopt the one that an earlier owner of the folder has left behind.

        Returns:
            Whether it was adopted.

        Raises:
            MpsError: If it runs already, does not start, or the folder is somebody else's; the
                text says which. What was started is ended again.
        """
        with self._life:
            if self._state in _LIVE:
                raise MpsError(f"MPS: the daemon in {self._home.folder} is {self._state} already")
            return self._bring_up(adopt=True)

    def restart(self) -> None:
        """End it, by force if need be, and start it anew. Its clients lose their GPU.

        Killed are, if they do not end, this daemon and its servers; nobody else.

        Raises:
            MpsError: If it cannot be ended, or does not start.
        """
        with self._life:
            self._bring_up(adopt=False)

    def close(self) -> None:
        """End it, by force if need be, and remove its directories. Nothing happens if none is here.

        Raises:
            MpsError: If a process of it cannot even be killed.
        """
        with self._life:
            if self._home.taken:
                self._launcher.end(polite=self._answers)
                self._home.leave()
                self._state = MpsState.ENDED

    def let_go(self) -> None:
        """Leave it running for the next owner of the folder, and be as if it was never started."""
        with self._life:
            self._home.let_go()
            self._launcher.process, self._state = None, MpsState.ABSENT

    def check(self) -> MpsHealth:
        """Find out how it is: one process looked at, one command, and one for each server."""
        with self._life:
            daemon = self._launcher.process
            if self._state not in _LIVE or daemon is None:
                return MpsHealth(state=self._state, reason=f"the daemon is {self._state}")
            if not processes.lives(daemon):
                self._state = MpsState.ENDED
                reason = f"the daemon (pid {daemon.pid}) has ended"
                if words := self._home.last_words():
                    reason += f"; the last line of its log: {words}"
                return MpsHealth(state=self._state, reason=reason)
            try:
                servers = self._look()
            except MpsError as error:
                return MpsHealth(state=self._state, reason=str(error), pid=daemon.pid)
            fault = self._fault(servers)
            self._state = MpsState.FAULTED if fault else MpsState.RUNNING
            reason = fault or f"the daemon (pid {daemon.pid}) answers"
            return MpsHealth(state=self._state, reason=reason, pid=daemon.pid, servers=servers)

    def tell(self, command: str) -> str:
        """Say one control command and return the answer.

        Raises:
            MpsTimeoutError: If it is not answered in time.
            MpsRefusedError: If the daemon says no.
            MpsError: If no daemon runs, or the program cannot be run.
            ValueError: If it is not one line.
        """
        with self._watched():
            return self._control.ask(command, may_refuse=True)

    def clients(self) -> list[MpsClient]:
        """Every process that works through this daemon.

        Raises:
            MpsError: If that cannot be told.
        """
        with self._watched():
            return [
                MpsClient(pid=client, server=server)
                for server in self._control.numbers("get_server_list")
                for client in self._control.numbers(f"get_client_list {server}", may_refuse=True)
            ]

    def terminate(self, pid: int) -> None:
        """End a client's work on the GPU, without harm to the others.

        Its process goes on and sees errors: who calls ends it afterwards. To kill a client that
        has work on the GPU without this first may take the others along.

        Raises:
            MpsError: If it is no client of this daemon, or the daemon does not do it.
        """
        clients = self.clients()
        servers = [one.server for one in clients if one.pid == pid]
        if not servers:
            there = ", ".join(str(one.pid) for one in clients) or "none"
            raise MpsError(f"MPS: {pid} is no client of this daemon; its clients: {there}")
        for server in servers:
            self.tell(f"terminate_client {server} {pid}")

    def client_environment(self, limits: ClientLimits) -> dict[str, str]:
        """The variables to set for a client of this daemon, beside those it has."""
        home = self._home
        return client_environment(home.pipe_directory, home.log_directory, limits, self.gpus)

    @property
    def _answers(self) -> bool:
        return self._control.failures < self._hung_after

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Commands to a daemon that runs; too many failures in a row make it hung."""
        if self._state not in _LIVE:
            raise MpsError(f"MPS: the daemon in {self._home.folder} is {self._state}")
        try:
            yield
        except MpsError:
            if not self._answers and self._state in _LIVE:
                self._state = MpsState.HUNG
            raise

    def _look(self) -> tuple[MpsServer, ...]:
        with self._watched():
            pids = self._control.numbers("get_server_list")
            self._launcher.note_servers(pids)
            return tuple(MpsServer(pid=pid, status=self._status(pid)) for pid in pids)

    def _status(self, server: int) -> str:
        try:
            return self._control.ask(f"get_server_status {server}", may_refuse=True)
        except MpsRefusedError:  # an older driver, or the server has just ended
            return ""

    def _fault(self, servers: Sequence[MpsServer]) -> str:
        """What is wrong with the servers; empty if nothing is. The log counts if they are mute."""
        line = self._home.fault_line() if servers else ""
        for server in servers:
            if "FAULT" in server.status.upper() or (line and not server.status):
                told = f"server {server.pid} has had a fault"
                return f"{told}; the line in its log: {line}" if line else told
        return ""

    def _bring_up(self, *, adopt: bool) -> bool:
        before, self._state = self._state, MpsState.STARTING
        launcher = self._launcher
        try:
            self._home.take()
            left = launcher.left_behind() if launcher.process is None else None
            if left and launcher.adopt(left, self._hung_after if adopt else 0):
                self._state = MpsState.RUNNING
                return True
        except BaseException:
            self._state = before
            if before not in _LIVE:
                self._home.let_go()
            raise
        try:
            launcher.end(polite=self._answers)
            launcher.launch()
        except BaseException:
            if launcher.process is None:
                self._home.leave()
            self._state = MpsState.ENDED if launcher.process is None else MpsState.HUNG
            raise
        self._state = MpsState.RUNNING
        return False
