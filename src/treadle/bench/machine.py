"""The machine and the software that figures belong to."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import treadle
from treadle.bench.results import Machine
from treadle.devices.cpu import cpu_device

_PACKAGES = ("aiohttp", "httptools", "numpy", "onnxruntime", "uvicorn", "uvloop")


def describe_machine() -> Machine:
    """The machine as it is now, before anything is measured."""
    device = cpu_device()
    return Machine(
        cpu=_cpu_model(Path("/proc/cpuinfo")),
        cores=device.cores,
        memory_bytes=device.memory_bytes,
        system=platform.platform(),
        load_average=os.getloadavg()[0],
    )


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Versions by name; packages that are not installed are left out."""
    found = {"treadle": treadle.__version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def command_line() -> str:
    """This program's command as one would type it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _cpu_model(path: Path) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((s.split(":", 1)[1].strip() for s in lines if s.startswith("model name")), None)
