"""Which ways to share, bound and move work there are here, found out by asking only.

Nothing here changes the machine: no daemon is started, no mode set, no context made.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from treadle.devices.device import Mechanism
from treadle.devices.mps import OtherDaemon, find_control, other_daemon, usual_pipe_directory
from treadle.errors import TreadleError

MECHANISMS = (
    "launch gate",
    "MPS",
    "MIG",
    "green contexts",
    "stream priority",
    "process checkpoint",
    "GPM",
    "fan control",
    "power limit",
    "memory limits",
)

_CHECKPOINT_DRIVER = (570,)
_GREEN_DRIVER = (550,)
_VOLTA = (7, 0)
_ROOT = "but to change it needs root"


def _gate_not_asked() -> Path:
    raise TreadleError("not known: nobody here looked for the gate's library")


@functools.cache
def _driver_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")  # loaded, never initialised
    except OSError:
        return None


def _driver_has(function: str) -> bool | None:
    """Whether the CUDA driver has a function; None where there is no driver library."""
    library = _driver_library()
    return None if library is None else hasattr(library, function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How to ask this machine; tests answer instead."""

    gate: Callable[[], Path] = _gate_not_asked
    """Where the launch gate's library lies; raises ``TreadleError`` with the reason if nowhere."""
    mps_control: Callable[[], Path] = find_control
    """Where MPS' control program lies; raises ``TreadleError`` if nowhere."""
    driver_has: Callable[[str], bool | None] = _driver_has
    is_root: bool = field(default_factory=lambda: os.geteuid() == 0)
    environment: Callable[[str], str | None] = os.environ.get
    root: Path = Path("/")
    """Of the file system, for /proc, /sys and /tmp."""

    def mps_daemon(self) -> OtherDaemon | None:
        """The MPS daemon that every CUDA program here would find, if there is one."""
        return other_daemon(usual_pipe_directory(self.environment, self.root))


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUFacts:
    """What a GPU's driver has said, each with the reason where it said nothing."""

    driver: tuple[int, ...]
    compute_capability: tuple[int, int] | None
    mig_on: bool | None
    """None where the GPU has no MIG."""
    mig_reason: str = ""
    gpm: bool = False
    gpm_reason: str = ""
    fans: int | None = None
    fans_reason: str = ""
    power_range_watts: tuple[float, float] | None = None
    power_reason: str = ""
    compute_prohibited: bool = False


def none_available(reason: str) -> list[Mechanism]:
    """Every mechanism, none of them available, for one reason."""
    return [Mechanism(name, False, reason) for name in MECHANISMS]


def gpu_mechanisms(facts: GPUFacts, host: Host) -> Sequence[Mechanism]:
    """Every mechanism, as it is for one NVIDIA GPU on this machine."""
    found = {
        "launch gate": _gate(host),
        "MPS": _mps(facts, host),
        "MIG": _mig(facts, host),
        "green contexts": _green(facts, host),
        "stream priority": _streams(host),
        "process checkpoint": _checkpoint(facts, host),
        "GPM": (facts.gpm, facts.gpm_reason or "the driver says that it is supported"),
        "fan control": _fans(facts, host),
        "power limit": _power(facts, host),
        "memory limits": _memory(host),
    }
    return [Mechanism(name, *found[name]) for name in MECHANISMS]


def _gate(host: Host) -> tuple[bool, str]:
    try:
        path = host.gate()
    except TreadleError as error:
        return False, str(error)
    if host.driver_has("cuLaunchKernel") is None:
        return False, "its library is built, but the CUDA driver's (libcuda.so.1) is not here"
    return True, f"its library is built: {path}"


def _mps(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    if facts.mig_on:
        return False, "with MIG on it would be one daemon for each instance, which is not done here"
    if facts.compute_prohibited:
        return False, "the GPU's compute mode prohibits compute"
    if facts.compute_capability is not None and facts.compute_capability < _VOLTA:
        return False, "GPUs before Volta share one context under MPS"
    if daemon := host.mps_daemon():
        return True, daemon.reason
    try:
        control = host.mps_control()
    except TreadleError as error:
        return False, str(error)
    return True, f"{control} is here; no daemon's pipe is"


def _mig(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    if facts.mig_on is None:
        return False, facts.mig_reason or "the GPU has none"
    if facts.mig_on:
        return True, "it is on"
    if not host.is_root:
        return False, f"the GPU has it, {_ROOT}"
    return True, "it is off; to turn it on, nobody may use the GPU"


def _green(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    return _driver_function(facts, host, "cuGreenCtxCreate", _GREEN_DRIVER)


def _streams(host: Host) -> tuple[bool, str]:
    if host.driver_has("cuStreamCreateWithPriority") is None:
        return False, "the CUDA driver's library (libcuda.so.1) is not here"
    return True, "the CUDA driver has it; it orders waiting blocks and stops no running one"


def _checkpoint(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    available, reason = _driver_function(facts, host, "cuCheckpointProcessLock", _CHECKPOINT_DRIVER)
    if available and (daemon := host.mps_daemon()):
        return False, f"not under MPS, and {daemon.reason}"
    return available, reason


def _driver_function(
    facts: GPUFacts, host: Host, function: str, since: tuple[int, ...]
) -> tuple[bool, str]:
    version = ".".join(map(str, facts.driver)) or "unknown"
    if facts.driver < since:
        return False, f"the driver is {version}; it takes {since[0]} or later"
    has = host.driver_has(function)
    if has is None:
        return False, "the CUDA driver's library (libcuda.so.1) is not here"
    if not has:
        return False, f"the CUDA driver's library has no {function}"
    return True, f"driver {version} has {function}"


def _fans(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    if not facts.fans:
        return False, facts.fans_reason or "the GPU has no fans of its own"
    if not host.is_root:
        return False, f"the GPU has {facts.fans} fans, {_ROOT}"
    return True, f"the GPU has {facts.fans} fans, and this is root"


def _power(facts: GPUFacts, host: Host) -> tuple[bool, str]:
    if facts.power_range_watts is None:
        return False, facts.power_reason or "the board tells no range"
    lowest, highest = facts.power_range_watts
    allowed = f"{lowest:g} to {highest:g} W"
    if not host.is_root:
        return False, f"the board takes {allowed}, {_ROOT}"
    return True, f"the board takes {allowed}, and this is root"


def _memory(host: Host) -> tuple[bool, str]:
    available, reason = _gate(host)
    if available:
        return True, "by the launch gate, for programs under treadle run --memory"
    return False, f"they are the launch gate's: {reason}"
