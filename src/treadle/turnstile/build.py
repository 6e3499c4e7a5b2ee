"""Building the gate's library: with the machine's C compiler, or with the one in ``ziglang``.

The package's build uses this file on its own, before anything is installed, so it imports
nothing of treadle. ``python -m treadle.turnstile.build`` builds the library in place.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).parent / "native"
LIBRARY = "libtreadle_gate.so"
MISSING = "libtreadle_gate.missing"

FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-ftls-model=initial-exec",
    "-Wall",
    "-Wextra",
    "-Werror",
)
LINK = (
    "-shared",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    f"-Wl,-soname,{LIBRARY}",
)
LIBRARIES = ("-ldl", "-lpthread")


class BuildError(Exception):
    """The library cannot be built here; the text says why."""


def system_compiler() -> list[str] | None:
    """The machine's C compiler: ``CC``, or ``cc``, ``gcc`` or ``clang``."""
    if given := os.environ.get("CC"):
        return given.split()
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    return None


def needs_ziglang() -> bool:
    """Whether a build here has to fetch a compiler."""
    return sys.platform.startswith("linux") and system_compiler() is None


def compiler() -> list[str]:
    """A command that compiles C for this machine.

    Raises:
        BuildError: If there is none.
    """
    if not sys.platform.startswith("linux"):
        raise BuildError(f"the launch gate is for Linux, this is {sys.platform}")
    if found := system_compiler():
        return found
    if importlib.util.find_spec("ziglang"):
        machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(
            platform.machine().lower(), platform.machine()
        )
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17"]
    raise BuildError("there is no C compiler here")


def build(target: Path, *, extra: tuple[str, ...] = ()) -> None:
    """Compile the library to ``target``, replacing what is there only when it succeeded.

    Raises:
        BuildError: If there is no compiler, or it fails.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    command = [*compiler(), *FLAGS, *extra, *LINK, "-o", str(fresh), *sources, *LIBRARIES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error}") from error
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        raise BuildError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    fresh.replace(target)


if __name__ == "__main__":
    try:
        build(Path(__file__).parent / LIBRARY)
    except BuildError as error:
        sys.exit(f"treadle: {error}")
    (Path(__file__).parent / MISSING).unlink(missing_ok=True)
