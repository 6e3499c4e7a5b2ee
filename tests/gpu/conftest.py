"""Programs on real GPUs under ``treadle run``; skipped, with the reason, where there are none.

They need PyTorch, and of the packages for tests only pytest:
``python -m pytest -c /dev/null --rootdir=. --confcutdir=tests/gpu tests/gpu``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import treadle
from treadle.turnstile import Member, Turnstile, TurnstileError, gate_library_path
from treadle.turnstile.build import LIBRARY, BuildError, build

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_SECONDS = 180.0
"""What takes longer hangs. Importing PyTorch and compiling take most of a minute at worst."""
_TAIL_CHARACTERS = 4000

LIST_GPUS = """
import ctypes, uuid
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
if code:
    raise SystemExit(f"the driver answers with code {code}")
import torch
if not torch.cuda.is_available():
    raise SystemExit("PyTorch cannot use the GPU")
for number in range(count.value):
    found = (ctypes.c_ubyte * 16)()
    driver.cuDeviceGetUuid_v2(found, number)
    print(f"GPU-{uuid.UUID(bytes=bytes(found))}")
"""
"""For a process of its own: the tests themselves never use a GPU."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu(count=1): needs CUDA GPUs; skipped where there are few")


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The UUIDs of the GPUs that there are, and why there are not more."""

    uuids: tuple[str, ...]
    reason: str = ""


@pytest.fixture(scope="session")
def gpus() -> Gpus:
    if not importlib.util.find_spec("torch"):
        return Gpus(uuids=(), reason="PyTorch is not installed")
    done = subprocess.run(
        [sys.executable, "-c", LIST_GPUS],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode:
        return Gpus(uuids=(), reason="".join(done.stderr.strip().splitlines()[-1:]))
    return Gpus(uuids=tuple(done.stdout.split()))


@pytest.fixture(autouse=True)
def enough_gpus(request: pytest.FixtureRequest, gpus: Gpus) -> None:
    """Skips a test that needs more GPUs than there are."""
    mark = request.node.get_closest_marker("gpu")
    needed = mark.args[0] if mark is not None and mark.args else 1
    if len(gpus.uuids) < needed:
        pytest.skip(f"needs {needed} GPU(s), here are {len(gpus.uuids)}. {gpus.reason}".strip())


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gate of this source; the one that was built before where there is no compiler."""
    path = tmp_path_factory.mktemp("gate") / LIBRARY
    try:
        build(path)
    except BuildError as reason:
        try:
            return gate_library_path()
        except TurnstileError:
            pytest.skip(str(reason))
    return path


class Program:
    """A program that says things a line at a time, and is told a line at a time."""

    def __init__(self, command: list[str], environment: dict[str, str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        self._buffer = b""
        self.pid = self._process.pid

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-_TAIL_CHARACTERS:]

    def expect(self, word: str) -> list[str]:
        """Read lines until one begins with a word; returns the other words of that line.

        Lines that begin otherwise are left out: libraries print, too.
        """
        assert self._process.stdout is not None
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            while b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                words = line.decode(errors="replace").split()
                if words[:1] == [word]:
                    return words[1:]
            left = max(end - time.monotonic(), 0)
            assert select.select([self._process.stdout], [], [], left)[0], (
                f"no {word!r} in {PATIENCE_SECONDS} s: {self.errors}"
            )
            data = os.read(self._process.stdout.fileno(), 65536)
            assert data, f"it ended before it said {word!r}: {self.errors}"
            self._buffer += data

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Let it end, which must be in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.errors}") from None
        assert code == 0, f"exit code {code}: {self.errors}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def clear_away(self) -> None:
        """Whatever it is doing. Launchers get a moment, to end what they have started."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@dataclass(kw_only=True)
class Floor:
    """A turnstile folder of the test's own, and the programs that share its GPUs."""

    folder: Path
    library: Path
    logs: Path
    gpus: tuple[str, ...]
    programs: list[Program] = field(default_factory=list)

    def start(self, command: list[str], **environment: str) -> Program:
        """Start a command as it is, with treadle at hand."""
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TREADLE_")}
        source = str(Path(treadle.__file__).parent.parent)
        ours |= {
            "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
            "PYTHONSAFEPATH": "1",  # our programs' names are no modules for libraries to find
            "TREADLE_TURNSTILE_DIR": str(self.folder),
            "TREADLE_GATE_LIBRARY": str(self.library),
            # Multicast over NVLink needs more of a container than many give.
            "NCCL_NVLS_ENABLE": "0",
        }
        errors = self.logs / f"{len(self.programs)}.stderr"
        program = Program(command, ours | environment, errors)
        self.programs.append(program)
        return program

    def run(
        self, program: str, *words: str, options: str = "", gpus: int = 1, **environment: str
    ) -> Program:
        """Start one of our programs under ``treadle run`` on the first GPUs.

        Args:
            program: Its name, which the turnstile shows too.
            words: Its arguments.
            options: Of ``treadle run``; background is its own default.
            gpus: How many GPUs it sees.
            environment: More variables.
        """
        python = [sys.executable, str(PROGRAMS / f"{program}.py"), *words]
        return self.run_command(program, python, options=options, gpus=gpus, **environment)

    def run_command(
        self,
        name: str,
        command: list[str],
        *,
        options: str = "",
        gpus: int = 1,
        **environment: str,
    ) -> Program:
        """The same for any command."""
        treadle_run = [sys.executable, "-m", "treadle", "run", "--name", name]
        seen = ["--gpu", ",".join(self.gpus[:gpus])]
        return self.start([*treadle_run, *seen, *options.split(), "--", *command], **environment)

    def pulses(self, gpu: int = 0) -> Program:
        """A critical member that closes the turnstile of one GPU for 2 of every 7 ms."""
        words = [str(PROGRAMS / "pulses.py"), str(self.folder), self.gpus[gpu]]
        program = self.start([sys.executable, *words])
        program.expect("ready")
        return program

    def page(self, gpu: int = 0) -> Turnstile:
        return Turnstile.open(self.folder, self.gpus[gpu])

    def path(self, gpu: int) -> Path:
        return self.folder / self.gpus[gpu]


@contextlib.contextmanager
def new_floor(library: Path, gpus: Gpus, logs: Path) -> Iterator[Floor]:
    """A floor; at the end what was started there is ended."""
    memory = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="treadle-", dir=memory if os.access(memory, os.W_OK) else None)
    floor = Floor(folder=Path(home), library=library, logs=logs, gpus=gpus.uuids)
    try:
        yield floor
    finally:
        for program in floor.programs:
            program.clear_away()
        shutil.rmtree(home)


@pytest.fixture
def floor(library: Path, gpus: Gpus, tmp_path: Path) -> Iterator[Floor]:
    with new_floor(library, gpus, tmp_path) as floor:
        yield floor


@pytest.fixture(scope="module")
def module_floor(
    library: Path, gpus: Gpus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Floor]:
    """For what takes long to start: one floor for all tests of a module."""
    if not gpus.uuids:
        pytest.skip(gpus.reason)
    with new_floor(library, gpus, tmp_path_factory.mktemp("logs")) as floor:
        yield floor


def member(page: Turnstile, name: str) -> Member:
    """The only member of that name."""
    (found,) = members(page, name)
    return found


def members(page: Turnstile, name: str) -> list[Member]:
    return [member for member in page.snapshot().members if member.name == name]


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that must come, without saying how fast."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.001)
