"""The gate and a busy program, built with the compiler's checkers: they must find nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.turnstile.conftest import compile_standin
from tests.turnstile.harness import Built, World
from tests.turnstile.test_turnstile import marker

from treadle.turnstile import build as gate_build

# These answer dlsym, which a checker's own start calls before it can check anything.
UNCHECKED = {"interpose.c", "driver.c"}
CHECKERS = {"thread": "libtsan.so", "address,undefined": "libasan.so"}


def _runtime(name: str) -> Path | None:
    asked = [*gate_build.compiler(), f"-print-file-name={name}"]
    path = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip())
    return path if path.is_absolute() and path.exists() else None


def _build(folder: Path, checker: str) -> Built:
    flags = (f"-fsanitize={checker}", "-fno-omit-frame-pointer")
    compile_standin(folder, flags)
    library = folder / gate_build.LIBRARY
    objects = []
    cc = gate_build.compiler()
    for source in sorted(gate_build.NATIVE.glob("*.c")):
        made = folder / f"{source.stem}.o"
        common = ["-std=gnu11", "-O1", "-g", "-fPIC", "-fvisibility=hidden"]
        check = [] if source.name in UNCHECKED else list(flags)
        subprocess.run([*cc, *common, *check, "-c", str(source), "-o", str(made)], check=True)
        objects.append(str(made))
    link = [*cc, *flags, "-shared", "-o", str(library), *objects, "-ldl", "-lpthread"]
    subprocess.run(link, check=True)
    return Built(
        folder=folder,
        library=library,
        program=folder / "program",
        program_plt=folder / "program_plt",
    )


@pytest.mark.parametrize("checker", list(CHECKERS))
def test_a_checker_finds_nothing(built: Built, tmp_path: Path, checker: str) -> None:
    runtime = _runtime(CHECKERS[checker])
    if runtime is None:
        pytest.skip(f"no {CHECKERS[checker]} here")
    (tmp_path / "built").mkdir()
    (tmp_path / "turnstile").mkdir(mode=0o700)
    plain = World(built=built, folder=tmp_path / "turnstile")
    checked = World(built=_build(tmp_path / "built", checker), folder=plain.folder)
    environment = {
        "LD_PRELOAD": f"{runtime}:{checked.built.library}",
        "TSAN_OPTIONS": "die_after_fork=0",
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "TREADLE_MEMORY_BYTES": "100000000",
        "TREADLE_CONTEXT_BYTES": "0",
        "TREADLE_WATCH": "1",
    }
    critical = marker(plain)
    try:
        for class_ in ("background", "critical", "normal"):
            program = checked.start(**environment, TREADLE_CLASS=class_)
            program.tell("threads 8 2000 5")
            for _ in range(50):
                critical.ask("mark")
                critical.ask("unmark")
            assert program.read() == "threads result=0"
            program.ask("start 5")
            for _ in range(20):
                assert program.ask("assign 2") == "assign 0"
                assert program.ask("assign -1") == "assign 0"
            program.ask("stop")
            assert program.ask("capture") == "capture result=0 nodes=2000"
            assert program.ask_fields("churn 8 2000")["wrong"] == "0"
            assert program.ask("serve 20 5 20 30") == "served 20"
            assert program.ask("unload") == "unload result=0"
            assert program.ask("brief 100") == "brief result=0"
            assert program.ask("graph 100 20") == "graph result=0"
            for launches in ("replay 4", "alternate 4", "each 4", "together 4"):
                assert program.ask(launches) == "replayed result=0"
            assert program.ask("discard") == "discarded result=0"
            program.tell("fork")
            assert "begin=0 fresh=0" in program.read()
            program.tell("")
            assert program.read() == "parent status=0"
            assert program.end() == (0, "")
    finally:
        for started in (*plain.programs, *checked.programs):
            with started:
                pass
