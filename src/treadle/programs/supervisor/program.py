"""Watches one job from its start to its end. Standard library only: one runs beside every job.

It is given the attempt's folder, which holds ``task.json``, and run without site-packages or the
rest of treadle, to be small and there at once. In the folder it leaves

- ``lock``: locked while it lives. The kernel drops it, so nobody needs to trust a number.
- ``begun``: on the disk before the job is started; without it the job has not been.
- ``socket``: says what happens, takes orders; one JSON object a line.
- ``log``, ``log.1``: the output, the newest part.
- ``ended.json``: how it ended. Its space is taken at the start, so that a full disk loses nothing.

Whoever finds the lock free and neither ``begun`` nor ``ended.json`` may put an ``ended.json`` there
while holding the lock: a supervisor that comes late then starts nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

from .ending import ENDED, synced, take_room, write_ended
from .log import Log
from .start import FORWARDED, adopt_orphans, become_job, descendants

BEGUN, LOCK, SOCKET, TASK = "begun", "lock", "socket", "task.json"
PASSING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
)
"""What keeps a job from being started now, and not for ever."""
TRY_AGAIN = 75
"""Exit code of a supervisor that such a thing has kept from starting its job (EX_TEMPFAIL). It has
deleted its ``task.json``: that can be done on a full disk, too."""
_READ_BYTES = 1 << 16
_LONGEST_ORDER = 4096
_LINGER_SECONDS = 0.05
"""Between two looks at processes that are to end."""
_LONGEST_WAIT_SECONDS = 60.0
_KILL_SECONDS = 0.5
"""Between two signals to processes that will not go at once: a disk may hold them."""


def now() -> float:
    """Seconds that also pass while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Supervisor:
    """One attempt at one job."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._log = Log(task["log_bytes"])
        self._poll = select.poll()
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        self._door.bind(SOCKET)
        self._door.listen(8)
        self._clients: dict[int, socket.socket] = {}
        self._orders: dict[int, bytes] = {}
        self._output, self._pid = -1, 0
        self._started_at = 0.0
        self._status: int | None = None
        self._stopped = False
        self._ending: str | None = None
        self._interrupted = False
        self._kill_at: float | None = None
        self._left_behind = 0
        for fd in (self._wake, self._door.fileno()):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> dict[str, Any]:
        """Start the job and watch it; returns how it ended."""
        failure = self._start()
        if failure is not None:
            return failure
        limit = self._task["time_limit_seconds"]
        deadline = None if limit is None else now() + limit
        while self._status is None or descendants(os.getpid()):
            if self._status is not None:
                deadline = None  # it has kept to it, whatever it has left behind
            elif deadline is not None and now() >= deadline and self._ending is None:
                self._end(f"its time limit of {limit:g} s was over")
            if self._kill_at is not None and now() >= self._kill_at:
                self._signal_all(signal.SIGKILL)
                self._kill_at = now() + _KILL_SECONDS
            self._wait(deadline)
        while self._output >= 0 and self._read_output():
            pass
        self._log.close()
        return self._result()

    def tell(self, event: dict[str, Any]) -> None:
        """Say something to everybody who listens."""
        line = json.dumps(event).encode() + b"\n"
        for client in [*self._clients.values()]:
            try:
                client.send(line)
            except OSError:
                self._hang_up(client)

    def _start(self) -> dict[str, Any] | None:
        """Start the job; if that cannot be, why."""
        output, job_output = os.pipe2(os.O_CLOEXEC)
        failed, job_failed = os.pipe2(os.O_CLOEXEC)
        me = os.getpid()
        try:
            with synced(BEGUN):
                pass
            self._started_at = time.time()
            self._pid = os.fork()
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(BEGUN)
            raise
        if self._pid == 0:
            become_job(self._task, job_output, job_failed, me)
        os.close(job_output)
        os.close(job_failed)
        os.set_blocking(output, False)
        self._output = output
        self._poll.register(output, select.POLLIN)
        with open(failed, "rb") as reading:
            text = reading.read().decode(errors="replace")
        if text:
            os.waitpid(self._pid, 0)
            code, _, reason = text.partition(" ")
            self._log.write(f"treadle: {reason}\n".encode())
            return self._ended(exit_code=int(code), reason=reason)
        return None

    def _wait(self, deadline: float | None) -> None:
        """Do what comes next: output, orders, children, time."""
        times = [t for t in (deadline if self._ending is None else None, self._kill_at) if t]
        seconds = min(times) - now() if times else None
        if self._status is not None:
            seconds = min(_LINGER_SECONDS, seconds if seconds is not None else _LINGER_SECONDS)
        if seconds is not None:  # a wait does not notice that the machine has slept
            seconds = min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)
        timeout = None if seconds is None else seconds * 1000 + 1
        for fd, _ in self._poll.poll(timeout):
            if fd == self._wake:
                self._signals(os.read(self._wake, 512))
            elif fd == self._output:
                self._read_output()
            elif fd == self._door.fileno():
                self._accept()
            else:
                self._listen(fd)

    def _signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGTERM:
                self._interrupt()
            elif self._status is None:
                self._signal_group(number)

    def _reap(self) -> None:
        running = self._status is None
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._pid:
                    self._status = found[1]
        if running and self._status is not None:  # and those that ended with it are gone
            self._leave_nothing()

    def _leave_nothing(self) -> None:
        """End what the job has left running: it is over when its first process is."""
        left = descendants(os.getpid())
        self._left_behind = len(left)
        if left:
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)
            kill_at = now() + self._task["grace_seconds"]
            self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def _interrupt(self) -> None:
        """End the job because the machine goes down, say: that is not its failure."""
        self._reap()  # it may just have ended by itself
        # Whoever ends the machine tells all at once: the job may have heard it first.
        heard = (
            self._status is not None and os.waitstatus_to_exitcode(self._status) == -signal.SIGTERM
        )
        if self._ending is None and (self._status is None or heard):
            self._interrupted = True
            self._ending = "its supervisor was told to end, as when the machine is shut down"
        self._end("")

    def _end(self, reason: str, grace: float | None = None) -> None:
        """Tell the job to end, and see that it does."""
        if self._ending is None and self._status is None:
            self._ending = reason
        kill_at = now() + (self._task["grace_seconds"] if grace is None else grace)
        if self._kill_at is None or kill_at < self._kill_at:
            self._kill_at = kill_at
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _signal_all(self, number: int) -> None:
        """Everything that came of the job, whatever group or session it went into."""
        if self._status is None:  # after that its number may be another's
            self._signal_group(number)
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _read_output(self) -> bool:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._log.write(data)
            return True
        self._poll.unregister(self._output)
        os.close(self._output)
        self._output = -1
        return False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._door.accept()
            client.setblocking(False)
            self._clients[client.fileno()] = client
            self._orders[client.fileno()] = b""
            self._poll.register(client, select.POLLIN)
            hello = {
                "event": "running",
                "pid": self._pid,
                "started_at": self._started_at,
                "stopped": self._stopped,
            }
            client.send(json.dumps(hello).encode() + b"\n")

    def _listen(self, fd: int) -> None:
        client = self._clients.get(fd)
        if client is None:
            return  # it could not be told something meanwhile
        try:
            data = client.recv(_LONGEST_ORDER)
        except OSError:
            data = b""
        if not data or len(self._orders[fd]) > _LONGEST_ORDER:
            self._hang_up(client)
            return
        *lines, self._orders[fd] = (self._orders[fd] + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._obey(json.loads(line))

    def _hang_up(self, client: socket.socket) -> None:
        self._poll.unregister(client)
        self._orders.pop(client.fileno())
        self._clients.pop(client.fileno())
        client.close()

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "end":
                self._end(str(order["reason"]), order.get("grace_seconds"))
            case "stop" if self._status is None and self._ending is None:
                self._stopped = True
                self._signal_all(signal.SIGSTOP)
                self.tell({"event": "stopped"})
            case "continue":
                self._stopped = False
                self._signal_all(signal.SIGCONT)
                self.tell({"event": "continued"})

    def _result(self) -> dict[str, Any]:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        reason = self._ending or ""
        if not reason and self._left_behind:
            reason = f"{self._left_behind} processes that it left running were ended"
        if self._log.lost_bytes:
            lost = f"{self._log.lost_bytes} bytes of its output were lost: the disk was full"
            reason = f"{reason}; {lost}" if reason else lost
        if code < 0:
            return self._ended(signal=-code, reason=reason, told=self._ending is not None)
        return self._ended(exit_code=code, reason=reason, told=self._ending is not None)

    def _ended(self, **fields: Any) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "event": "ended",
            "exit_code": None,
            "signal": None,
            "reason": "",
            "told": False,
            "interrupted": self._interrupted,
            "started_at": self._started_at,
            "ended_at": time.time(),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "memory_bytes": usage.ru_maxrss * 1024,
            **fields,
        }


def main(folder: str, lock: int | None = None) -> int:
    """Be the supervisor of the attempt in ``folder``.

    Args:
        folder: Of the attempt.
        lock: Its lock, if somebody has taken it for this process.
    """
    os.chdir(folder)
    if lock is None:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 1  # another one has it
    if os.path.exists(ENDED) or os.path.exists(BEGUN):
        return 1  # somebody came first
    with open(TASK, "rb") as file:
        task = json.load(file)
    adopt_orphans()
    take_room()
    try:
        supervisor = Supervisor(task)
        result = supervisor.run()
    except OSError as error:
        if error.errno not in PASSING or os.path.exists(BEGUN):
            raise
        print(error, file=sys.stderr)
        os.unlink(TASK)
        return TRY_AGAIN
    if task["cgroup"]:
        with contextlib.suppress(OSError):  # what cannot be ended is still in it
            os.rmdir(task["cgroup"])
    while True:
        try:
            write_ended(result)
            break
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            time.sleep(1.0)
    supervisor.tell(result)
    return 0
