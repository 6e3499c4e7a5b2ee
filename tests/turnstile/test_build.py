"""Which compiler builds the gate, and what is said where none can."""

from __future__ import annotations

import importlib.util
import platform
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.turnstile import TurnstileError, gate_library_path, library
from treadle.turnstile import build as gate_build

COMPILER = """#!/bin/sh
printf '%s\\n' "$@" > "$RECORD"
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && printf made > "$2"
    shift
done
"""
BROKEN = "#!/bin/sh\necho 'no such header' >&2\nexit 1\n"
ZIGLANG = """
import os, sys
from pathlib import Path
Path(os.environ["RECORD"]).write_text("\\n".join(sys.argv[1:]))
Path(sys.argv[sys.argv.index("-o") + 1]).write_text("made")
"""

VERSIONS_NEEDED = 0x6FFFFFFE

Place = Callable[..., Path]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a compiler; the file in which a fake one notes what it was told."""
    empty, noted = tmp_path / "bin", tmp_path / "record"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("RECORD", str(noted))
    monkeypatch.delenv("CC", raising=False)
    return noted


@pytest.fixture
def place(record: Path, tmp_path: Path) -> Place:
    """Puts a program on that machine's path."""

    def put(name: str, program: str = COMPILER) -> Path:
        path = tmp_path / "bin" / name
        path.write_text(program)
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def ziglang(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that brings a compiler along."""
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(ZIGLANG)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


@pytest.fixture
def no_ziglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


def test_the_first_of_the_usual_compilers_is_taken(place: Place) -> None:
    for name in ("clang", "gcc", "cc"):
        path = place(name)
        assert gate_build.compiler() == [str(path)]
        assert not gate_build.needs_ziglang()


def test_the_compiler_that_was_asked_for_is_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("cc")
    monkeypatch.setenv("CC", "ccache gcc-14 -m64")
    assert gate_build.compiler() == ["ccache", "gcc-14", "-m64"]


def test_the_machines_compiler_goes_before_the_packages(place: Place, ziglang: None) -> None:
    path = place("gcc")
    assert gate_build.compiler() == [str(path)]


@pytest.mark.parametrize(
    ("machine", "target"),
    [
        ("x86_64", "x86_64-linux-gnu.2.17"),
        ("AMD64", "x86_64-linux-gnu.2.17"),
        ("aarch64", "aarch64-linux-gnu.2.17"),
        ("arm64", "aarch64-linux-gnu.2.17"),
    ],
)
def test_without_a_compiler_the_packages_builds_for_an_old_c_library(
    machine: str,
    target: str,
    record: Path,
    ziglang: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert gate_build.needs_ziglang()
    made = tmp_path / "out" / gate_build.LIBRARY
    gate_build.build(made)
    assert made.read_text() == "made"
    words = record.read_text().splitlines()
    assert words[:3] == ["cc", "-target", target]
    assert [word for word in words if word.endswith("/interpose.c")]
    assert "-shared" in words


def test_without_any_compiler_it_is_said(record: Path, no_ziglang: None, tmp_path: Path) -> None:
    assert gate_build.needs_ziglang()
    with pytest.raises(gate_build.BuildError, match="there is no C compiler here"):
        gate_build.build(tmp_path / gate_build.LIBRARY)


def test_elsewhere_than_on_linux_nothing_is_built(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("cc")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not gate_build.needs_ziglang()
    with pytest.raises(gate_build.BuildError, match="for Linux, this is darwin"):
        gate_build.compiler()


def test_a_build_that_fails_says_why_and_leaves_what_was_there(
    place: Place, tmp_path: Path
) -> None:
    place("cc", BROKEN)
    before = tmp_path / "out" / gate_build.LIBRARY
    before.parent.mkdir()
    before.write_text("before")
    with pytest.raises(gate_build.BuildError, match="failed: no such header"):
        gate_build.build(before)
    assert before.read_text() == "before"
    assert list(before.parent.iterdir()) == [before]


def test_a_compiler_that_is_not_there_is_said(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(gate_build.BuildError, match="cannot run /nowhere/cc: "):
        gate_build.build(tmp_path / gate_build.LIBRARY)


def test_what_the_build_noted_is_said_when_the_gate_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREADLE_GATE_LIBRARY", raising=False)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    (tmp_path / gate_build.MISSING).write_text("there is no C compiler here\n")
    with pytest.raises(TurnstileError, match=r"there is no C compiler here\. .*install ziglang"):
        gate_library_path()


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="needs ziglang")
@pytest.mark.parametrize("target", ["x86_64-linux-gnu.2.17", "aarch64-linux-gnu.2.17"])
def test_it_builds_for_the_oldest_c_library(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc -target {target}")
    made = tmp_path / gate_build.LIBRARY
    gate_build.build(made)
    assert needed_of_the_c_library(made.read_bytes()) <= (2, 17)


def needed_of_the_c_library(elf: bytes) -> tuple[int, int]:
    """The newest version that the loader insists on. (What is asked for at run time may lack.)"""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQI", elf, start + size * n) for n in range(count)]
    (names,) = (sections[link] for _, kind, *_, link in sections if kind == VERSIONS_NEEDED)
    strings = elf[names[4] : names[4] + names[5]]
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", strings)
    return max((int(major), int(minor)) for major, minor in found)
