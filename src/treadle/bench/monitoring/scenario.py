"""Makes load on one GPU, phase by phase, and says what it did and when."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from treadle.bench.colocation.process import RoleError, RoleProcess
from treadle.bench.monitoring.phases import AFTER, GATE, IDLE, MPS, WAVE, Load, Phase, Seen
from treadle.devices.device import DeviceError, MonitoredDevice
from treadle.devices.mps import MpsDaemon
from treadle.errors import TreadleError
from treadle.turnstile import gate_library_path
from treadle.turnstile.build import BuildError, build
from treadle.turnstile.launch import GateOptions, gate_environment
from treadle.types import Priority

_GIB = 1 << 30
_START_SECONDS = 120.0
"""To import PyTorch and make a context, on a disk that is cold."""
_REST_SECONDS = 3.0
_SETTLE_SECONDS = 2.0
"""Until what is read once a second shows what is new."""
_LAST_SECONDS = 0.2
"""Until what was launched last is counted."""
_OWN = ("TREADLE_", "CUDA_MPS_")

Say = Callable[[str], None]


def clean_environment() -> dict[str, str]:
    """Our environment without any gate or MPS of the caller's."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN) and name != "LD_PRELOAD"
    }


class Plan:
    """A load that is to be started."""

    def __init__(self, name: str, gib: int, on: float, off: float) -> None:
        self.name, self.memory_bytes, self.on, self.off = name, gib * _GIB, on, off

    def command(self, seconds: float) -> list[str]:
        options = {
            "memory-bytes": self.memory_bytes, "on": self.on, "off": self.off, "seconds": seconds,
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [sys.executable, "-m", "treadle.bench.monitoring.load", *words]


class Scenario:
    """The phases, on one device."""

    def __init__(
        self, device: MonitoredDevice, pages: Path, seconds: float, say: Say, *, alone: bool
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            device: Of which processes are listed.
            pages: The turnstiles' folder, the monitor's too.
            seconds: Of each phase that makes load.
            say: Told what is being done.
            alone: Whether the machine has this GPU only: then nothing says which to use.
        """
        self._device, self._pages, self._seconds, self._say = device, pages, seconds, say
        self._gpus = None if alone else device.info.uuid

    def run(self) -> list[Phase]:
        """Everything, one after another."""
        return [
            self._rest(IDLE),
            self._attempt(WAVE, self._wave),
            self._attempt(GATE, self._gate),
            self._attempt(MPS, self._mps),
            self._rest(AFTER, _SETTLE_SECONDS),
        ]

    def _attempt(self, name: str, phase: Callable[[], Phase]) -> Phase:
        """A phase that cannot be is left out, with the reason; the others go on."""
        self._say(name)
        try:
            return phase()
        except RoleError as error:
            return Phase(name=name, skipped=str(error), failed=True)
        except (TreadleError, OSError, BuildError) as error:
            return Phase(name=name, skipped=str(error))

    def _rest(self, name: str, settle: float = 0.0) -> Phase:
        self._say(name)
        time.sleep(settle)
        began = time.monotonic()
        time.sleep(_REST_SECONDS)
        return Phase(name=name, began=began, ended=time.monotonic())

    def _environment(self) -> dict[str, str]:
        more = {} if self._gpus is None else {"CUDA_VISIBLE_DEVICES": self._gpus}
        return clean_environment() | more

    def _wave(self) -> Phase:
        return self._play(WAVE, [(Plan("wave", 4, 2.0, 2.0), self._environment())])

    def _gate(self) -> Phase:
        library = self._pages.parent / "libtreadle_gate.so"
        try:
            library = gate_library_path()
        except TreadleError:  # not built here yet
            build(library)

        def gated(priority: Priority, name: str) -> dict[str, str]:
            options = GateOptions(
                priority=priority, folder=self._pages, name=name, gpus=self._gpus, library=library
            )
            environment = self._environment()
            return environment | gate_environment(options, environment)

        critical, background = Plan("critical", 6, 0.5, 1.5), Plan("background", 10, 3600.0, 0.0)
        return self._play(
            GATE,
            [
                (critical, gated(Priority.CRITICAL, "critical")),
                (background, gated(Priority.BACKGROUND, "background")),
            ],
        )

    def _mps(self) -> Phase:
        gpus = () if self._gpus is None else (self._gpus,)
        with MpsDaemon(self._pages.parent / "mps", gpus) as daemon:
            under = self._environment() | {"CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe_directory)}
            plans = [Plan("first client", 3, 2.0, 2.0), Plan("second client", 5, 2.0, 2.0)]
            return self._play(MPS, [(plan, under) for plan in plans])

    def _play(self, name: str, loads: Sequence[tuple[Plan, Mapping[str, str]]]) -> Phase:
        """Start loads, let all of them work at once, look at the processes, end them."""
        with ExitStack() as stack:
            roles = [
                stack.enter_context(_role(plan, self._seconds, environment))
                for plan, environment in loads
            ]
            ready = [role.expect("ready", _START_SECONDS) for role in roles]
            time.sleep(_SETTLE_SECONDS)
            began = time.monotonic()
            for role in roles:
                role.tell("go")
            time.sleep(self._seconds / 2)
            processes = self._look()
            done = [role.expect("done", self._seconds + _START_SECONDS) for role in roles]
            time.sleep(_LAST_SECONDS)
            ended = time.monotonic()
            return Phase(
                name=name,
                began=began,
                ended=ended,
                processes=processes,
                loads=tuple(
                    Load(
                        name=plan.name,
                        pid=int(first["pid"]),
                        memory_bytes=int(first["memory_bytes"]),
                        on=tuple((float(begin), float(end)) for begin, end in last["on"]),
                        launches=int(last["launches"]),
                    )
                    for (plan, _), first, last in zip(loads, ready, done, strict=True)
                ),
            )

    def _look(self) -> tuple[Seen, ...]:
        try:
            listed = self._device.processes()
        except DeviceError as error:
            return (
                Seen(pid=None, name="", memory_bytes=None, sm_activity=None, reason=str(error)),
            )
        return tuple(
            Seen(
                pid=one.pid,
                name=one.name,
                memory_bytes=one.memory_bytes,
                sm_activity=one.sm_activity,
                reason=one.reason,
            )
            for one in listed
        )


@contextmanager
def _role(plan: Plan, seconds: float, environment: Mapping[str, str]) -> Iterator[RoleProcess]:
    role = RoleProcess(plan.name, plan.command(seconds), environment)
    try:
        yield role
    finally:
        role.close()
