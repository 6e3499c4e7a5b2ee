"""A supervisor as a node starts it, and what comes of it."""

from __future__ import annotations

import asyncio
import atexit
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import treadle.programs
from treadle.programs.attempt import MARK, Attempt, Ending, Fate, Task, User
from treadle.programs.spawner import Spawner

SPAWNER = Spawner()
atexit.register(SPAWNER.close)
DEADLINE_SECONDS = 30.0
"""How long anything that must happen may take here. Nothing that works comes near it."""
PATH = "/usr/local/bin:/usr/bin:/bin"
_JOBS = Path(treadle.programs.__file__).parent


async def until(condition: Callable[[], object], what: str) -> None:
    """Look again and again until ``condition`` holds; fail with ``what`` if it does not."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():  # noqa: ASYNC110 - other processes tell nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE_SECONDS:g} s in vain: {what}") from None


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended but was not looked after does not."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Watched:
    """One attempt at a job."""

    def __init__(self, folder: Path, mark: str = "0.0") -> None:
        self.folder = folder
        self.mark = f"{MARK}={mark}"
        self.events: list[dict[str, Any]] = []
        self.attempt = Attempt(folder, self.events.append)
        self._following: asyncio.Task[tuple[Fate, Ending | None]] | None = None

    def task(
        self,
        *command: str,
        env: dict[str, str] | None = None,
        cwd: str = "/",
        umask: int = 0o022,
        time_limit: float | None = None,
        grace: float = DEADLINE_SECONDS,
        log_bytes: int = 1 << 20,
        limits: dict[str, int] | None = None,
        nice: int = 0,
        user: User | None = None,
    ) -> Task:
        name, _, value = self.mark.partition("=")
        return Task(
            command=command,
            env={"PATH": PATH, name: value} if env is None else env,
            cwd=cwd,
            umask=umask,
            time_limit_seconds=time_limit,
            grace_seconds=grace,
            log_bytes=log_bytes,
            limits=limits or {},
            nice=nice,
            user=user,
        )

    def start(self, *command: str, **fields: Any) -> None:
        """Start the supervisor, and follow it."""
        self.attempt.start(self.task(*command, **fields), SPAWNER)
        self._following = asyncio.ensure_future(self.attempt.follow())

    def follow(self) -> None:
        """Follow a supervisor that somebody else has started."""
        self._following = asyncio.ensure_future(self.attempt.follow())

    async def fate(self) -> tuple[Fate, Ending | None]:
        """What became of it, once nobody watches it any more."""
        assert self._following is not None
        return await asyncio.wait_for(self._following, DEADLINE_SECONDS)

    async def end(self) -> Ending:
        """How it ended."""
        fate, ending = await self.fate()
        assert fate is Fate.ENDED, (fate, self.attempt.complaint())
        assert ending is not None
        return ending

    async def run(self, *command: str, **fields: Any) -> Ending:
        """Run a job to its end."""
        self.start(*command, **fields)
        return await self.end()

    async def is_running(self) -> int:
        """Wait until it says that it runs; returns the job's process."""
        return int((await self.heard("running"))["pid"])

    async def heard(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until it has said something so many times."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.events if one["event"] == event]

        await until(lambda: len(found()) >= times, f"{event} is said; {self.events}")
        return found()[-1]

    async def has_written(self, text: str) -> None:
        """Wait until the job has written something."""
        await until(lambda: text in self.output, f"the job writes {text!r}")

    @property
    def output(self) -> str:
        """What of the job's output is kept."""
        parts = [self.folder / "log.1", self.folder / "log"]
        return "".join(p.read_bytes().decode(errors="replace") for p in parts if p.exists())

    def names(self) -> set[str]:
        return {file.name for file in self.folder.iterdir()}

    async def client(self) -> socket.socket:
        """Another one that talks to the supervisor."""
        path = self.folder / "socket"
        await until(path.is_socket, "it opens its socket")
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
        except OSError:
            client.close()
            raise
        client.settimeout(DEADLINE_SECONDS)
        return client

    async def supervisor(self) -> int:
        """The supervisor's process."""
        with await self.client() as client:
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def prepare(self, task: Task) -> None:
        """Leave the folder as a node does, without starting a supervisor."""
        self.folder.mkdir(exist_ok=True)
        fields = {name: getattr(task, name) for name in task.__struct_fields__}
        (self.folder / "task.json").write_text(json.dumps(fields))

    def run_program(self, before: str = "") -> subprocess.CompletedProcess[str]:
        """Run a supervisor on the folder to its end, in a process that does something first."""
        code = (
            f"import sys; sys.path[:0] = [{str(_JOBS)!r}]\n{before}\n"
            "from supervisor.program import main\nsys.exit(main(sys.argv[1]))"
        )
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, str(self.folder)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
