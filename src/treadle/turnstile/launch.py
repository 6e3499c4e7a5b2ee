"""The environment that puts a program under the gate, and what keeps the gate from a program."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from treadle.turnstile.library import gate_library_path
from treadle.types import Priority

_ELF = b"\x7fELF"
_SCRIPT = b"#!"
_PT_INTERP = 3
_HEAD_BYTES = 4096
_MOST_INTERPRETERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """How a program is to be gated."""

    priority: Priority
    folder: Path
    """The turnstile folder, or the page of the only GPU."""
    name: str = ""
    memory_bytes: int | None = None
    gpus: str | None = None
    """As ``CUDA_VISIBLE_DEVICES`` takes them."""
    library: Path | None = None
    """The gate to preload, instead of the one that was built here."""


def gate_environment(
    options: GateOptions, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables to set for a program, beside those it has.

    Libraries that the program preloads already stay, behind the gate.

    Raises:
        TurnstileError: If the gate's library is missing.
    """
    # The loader takes spaces and colons between the names of libraries.
    kept = environment.get("LD_PRELOAD", "").replace(":", " ").split()
    preload = [str(options.library or gate_library_path()), *kept]
    variables = {
        "LD_PRELOAD": ":".join(dict.fromkeys(preload)),
        "TREADLE_TURNSTILE": str(options.folder),
        "TREADLE_CLASS": options.priority.label,
    }
    if options.name:
        variables["TREADLE_NAME"] = options.name
    if options.memory_bytes is not None:
        variables["TREADLE_MEMORY_BYTES"] = str(options.memory_bytes)
    if options.gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = options.gpus
    return variables


def why_no_effect(program: str) -> str:
    """Why the gate cannot be preloaded into a program; empty if it can, or if nobody knows.

    A script is judged by its interpreter.
    """
    path = shutil.which(program)
    for _ in range(_MOST_INTERPRETERS):
        if path is None:
            return ""
        try:
            mode = Path(path).stat().st_mode
            with Path(path).open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            return ""
        if head.startswith(_ELF):
            if mode & (stat.S_ISUID | stat.S_ISGID):
                return f"{path} changes its user or group: the system preloads nothing into it"
            return "" if _has_interpreter(head) else f"{path} is statically linked"
        if not head.startswith(_SCRIPT):
            return ""
        words = head[len(_SCRIPT) :].split(b"\n", 1)[0].split()
        if not words:
            return ""
        # "#!/usr/bin/env python3": what counts is what env looks for.
        by_env = words[0].endswith(b"/env") and len(words) > 1
        path = shutil.which(os.fsdecode(words[1] if by_env else words[0]))
    return ""


def _has_interpreter(head: bytes) -> bool:
    """Whether an ELF program asks for a dynamic loader, which is what reads ``LD_PRELOAD``."""
    wide, order = head[4] == 2, "little" if head[5] == 1 else "big"

    def number(offset: int, size: int) -> int:
        return int.from_bytes(head[offset : offset + size], order)  # type: ignore[arg-type]

    start = number(32, 8) if wide else number(28, 4)
    size, count = (number(54, 2), number(56, 2)) if wide else (number(42, 2), number(44, 2))
    return any(number(start + size * n, 4) == _PT_INTERP for n in range(count))
