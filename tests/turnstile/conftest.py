"""The gate, a stand-in for the driver, and programs: compiled once for all tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.turnstile.harness import Built, World

from treadle.turnstile import build as gate_build

SOURCES = Path(__file__).parent / "standin"


def compile_standin(folder: Path, flags: tuple[str, ...] = ()) -> None:
    """Build the stand-in libcuda and the two programs into ``folder``."""
    common = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", f"-I{gate_build.NATIVE}", *flags]
    cc = gate_build.compiler()

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [*cc, *common, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    driver = [str(path) for path in sorted(SOURCES.glob("standin*.c"))]
    program = [str(path) for path in sorted(SOURCES.glob("program*.c"))]
    libraries = ["-ldl", "-lpthread"]
    shared = ["-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic"]
    cuda = folder / "libcuda.so.1"
    run(*shared, "-Wl,-soname,libcuda.so.1", "-o", str(cuda), *driver, *libraries)
    (folder / "libcuda.so").symlink_to(cuda)
    nvml = folder / "libnvidia-ml.so.1"
    run(*shared, "-o", str(nvml), str(SOURCES / "nvml.c"), *libraries)
    run("-o", str(folder / "program"), *program, *libraries)
    run(
        *("-DPLT", "-o", str(folder / "program_plt"), *program),
        *(f"-L{folder}", "-lcuda", *libraries),
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if not gate_build.system_compiler() and not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("standin")
    library = folder / gate_build.LIBRARY
    gate_build.build(library)
    compile_standin(folder)
    return Built(
        folder=folder,
        library=library,
        program=folder / "program",
        program_plt=folder / "program_plt",
    )


@pytest.fixture
def world(built: Built, tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "turnstile"
    folder.mkdir(mode=0o700)
    world = World(built=built, folder=folder)
    yield world
    for program in world.programs:
        with program:
            pass
