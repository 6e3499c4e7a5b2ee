"""The command line: its surface, and how little it takes to print it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from treadle.cli.exits import Exit
from treadle.cli.main import app

SURFACE = Path(__file__).with_name("cli_surface.txt")
ENVIRONMENT = {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "TERM": "dumb"}
HEAVY = (
    "numpy",
    "pynvml",
    "onnxruntime",
    "uvicorn",
    "aiohttp",
    "starlette",
    "msgspec",
    "torch",
    "rich",
)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command there is, the groups included, by the words that name it."""
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from commands(inner, (*path, name))


def surface() -> str:
    """What ``--help`` prints of every command."""
    parts = []
    for path in commands(typer.main.get_command(app)):
        result = CliRunner().invoke(app, [*path, "--help"], env=ENVIRONMENT, prog_name="treadle")
        assert result.exit_code == 0, result.output
        lines = "\n".join(line.rstrip() for line in result.output.strip().splitlines())
        parts.append(f"$ {' '.join(('treadle', *path, '--help'))}\n{lines}\n")
    return "\n".join(parts)


def test_the_surface_is_the_one_that_was_agreed_on() -> None:
    """To accept a change: ``python tests/test_cli.py``, and look at the difference."""
    assert surface() == SURFACE.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_a_group_without_a_command_prints_its_help(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments, env=ENVIRONMENT)
    assert result.exit_code == Exit.USAGE
    assert "Usage:" in result.output


@pytest.mark.parametrize("module", ["treadle", "treadle.cli.main"])
def test_importing_it_reads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules, sep=chr(10))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert module in loaded
    assert [name for name in HEAVY if name in loaded] == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "treadle.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_check_says_that_a_file_is_good(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[[model]]\nname = "m"\nfactory = "a:b"\n')
    result = run("check", str(file))
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    assert result.stdout == f"{file}: good; 1 models\n"


def test_check_says_in_one_line_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[http]\nport = 70000\n")
    result = run("check", str(file))
    assert (result.returncode, result.stdout) == (Exit.CONFIG, "")
    assert result.stderr.startswith(f"treadle: {file}: http.port: ")
    assert result.stderr.count("\n") == 1


def test_a_missing_argument_is_a_usage_error() -> None:
    result = run("check")
    assert (result.returncode, result.stdout) == (Exit.USAGE, "")
    assert "FILE.toml" in result.stderr


if __name__ == "__main__":
    SURFACE.write_text(surface(), encoding="utf-8")
