"""``treadle env``: what another launcher has to set so that a program is gated."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Mapping
from pathlib import Path

import orjson
import typer

from treadle.errors import TreadleError
from treadle.turnstile import default_folder
from treadle.turnstile.folder import check_folder
from treadle.turnstile.launch import GateOptions, gate_environment
from treadle.types import Priority
from treadle.units import parse_bytes


class Format(enum.StrEnum):
    """For whom it is written."""

    SH = "sh"
    DOCKER = "docker"
    SYSTEMD = "systemd"
    KERNELSPEC = "kernelspec"
    JSON = "json"


def run(
    *, priority: str, memory: str | None, gpus: str | None, name: str | None, form: str
) -> None:
    """Print the variables.

    Raises:
        TreadleError: If an option is wrong, or there is no gate to load.
    """
    try:
        parsed, chosen = Priority.parse(priority), Format(form)
    except ValueError as error:
        allowed = f"--format: {form!r}; allowed: {', '.join(Format)}"
        raise TreadleError(f"--priority: {error}" if form in [*Format] else allowed) from None
    folder = default_folder()
    # Where there is no folder, the gate would make a page of that name.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_folder(folder)
    options = GateOptions(
        priority=parsed,
        folder=folder,
        name=name or "",
        memory_bytes=None if memory is None else parse_bytes(memory),
        gpus=gpus,
    )
    # The launcher's own preloads are not known here: those of this shell are not for it.
    typer.echo(write(chosen, gate_environment(options, {}), folder))


def write(form: Format, variables: Mapping[str, str], folder: Path) -> str:
    """The variables as a launcher takes them."""
    match form:
        case Format.SH:
            return "\n".join(f"export {name}={shlex.quote(v)}" for name, v in variables.items())
        case Format.DOCKER:
            library = variables["LD_PRELOAD"]
            words = [f"-v {shlex.quote(f'{library}:{library}:ro')}"]
            words.append(f"-v {shlex.quote(f'{folder}:{folder}')}")
            words += [f"-e {shlex.quote(f'{name}={value}')}" for name, value in variables.items()]
            return " \\\n  ".join(words)
        case Format.SYSTEMD:
            lines = [f'Environment="{n}={_systemd(value)}"' for n, value in variables.items()]
            return "\n".join(["[Service]", *lines])
        case Format.KERNELSPEC:
            content = {"env": dict(variables)}
            return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode()
        case Format.JSON:
            return orjson.dumps(dict(variables), option=orjson.OPT_INDENT_2).decode()


def _systemd(value: str) -> str:
    """A value inside double quotes in a unit file, where ``%`` begins a specifier."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
