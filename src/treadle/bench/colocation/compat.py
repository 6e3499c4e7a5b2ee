"""What works under the launch gate: small programs, each in its own process and time.

``python -m treadle.bench.colocation.compat [NAME…]`` prints a table. While they run, a critical
member closes and opens the turnstile over and over, so that launches really wait.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treadle.bench.colocation.gate import (
    Counters,
    Gate,
    join_as_critical,
    library_environment,
    open_gate,
    shared_folder,
)
from treadle.bench.colocation.modes import BACKGROUND, CRITICAL, gate_environment
from treadle.bench.colocation.pool import role_environment
from treadle.bench.colocation.programs import ABSENT, PROGRAMS
from treadle.errors import TreadleError

_BUSY_SECONDS = 0.002
_IDLE_SECONDS = 0.005
_LOOK_SECONDS = 0.02
_OUTCOMES = {0: "pass", ABSENT: "absent"}
_TAIL_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one program works, and why not."""

    program: str
    outcome: str
    """``pass``, ``fail``; ``absent``: a library or GPU that it needs is not here; ``ungated``: it
    works, but the gate saw none of its launches."""
    reason: str
    seconds: float
    launches: int = 0
    """Launches that the gate saw, about: looked up while the program ran."""


def check(name: str, gate: Gate, member: str, timeout_seconds: float) -> Verdict:
    """Run one program under the gate.

    Args:
        name: One of ``PROGRAMS``.
        gate: What it is put under.
        member: Its class there.
        timeout_seconds: After which it counts as hung, and is killed.
    """
    gated = gate_environment(member, name=f"compat-{name}", gate=gate)
    environment = dict(role_environment(gated.items()))
    if name == "checkpoint":  # its child is what is gated; it cannot lock itself
        environment = {**role_environment(()), "COMPAT_GATE": json.dumps(gated)}
    command = [sys.executable, "-m", "treadle.bench.colocation.programs", name]
    with launches_seen(gate.page) as seen:
        verdict = run_bounded(name, command, environment, timeout_seconds)
    launches = seen.get(gated["TREADLE_NAME"], 0)
    ungated = verdict.outcome == "pass" and not launches
    outcome = "ungated" if ungated else verdict.outcome
    return dataclasses.replace(verdict, outcome=outcome, launches=launches)


def run_bounded(
    name: str, command: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> Verdict:
    """Run a command that says in its last line and exit code how it went."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603  # our own programs
            command, stdout=output, stderr=errors, env=dict(environment), start_new_session=True
        )
        try:
            code: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        said, complained = (_read(file.fileno()) for file in (output, errors))
    if code is None:
        reason = f"hung for {timeout_seconds:.0f} s; {_last(complained)}"
    elif code in _OUTCOMES:
        reason = _last(said)
    else:
        reason = f"exit code {code}: {_last(complained)}"
    return Verdict(
        program=name,
        outcome="fail" if code is None else _OUTCOMES.get(code, "fail"),
        reason=reason,
        seconds=round(time.monotonic() - began, 1),
    )


@contextlib.contextmanager
def launches_seen(page: Path) -> Iterator[dict[str, int]]:
    """Look at a page over and over; most launches by member, since a seat goes with its process."""
    seen: dict[str, int] = {}
    ended = threading.Event()

    def look() -> None:
        counters = Counters(page)
        while not ended.wait(_LOOK_SECONDS):
            for member in counters.read():
                seen[member["name"]] = max(seen.get(member["name"], 0), member["launches"])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def pulses(page: Path) -> Iterator[None]:
    """Have a critical member close the turnstile for 2 of every 7 ms."""
    marker = join_as_critical(str(page), "pulses")
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_IDLE_SECONDS):
            marker.busy()
            time.sleep(_BUSY_SECONDS)
            marker.idle()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def as_markdown(verdicts: Iterable[Verdict]) -> str:
    """A table of what works."""
    lines = [
        "| program | under the gate | | launches | seconds |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    lines += [
        f"| {v.program} | {v.outcome} | {v.reason.replace('|', '/')} | {v.launches} | {v.seconds} |"
        for v in verdicts
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the chosen programs and print the table; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="treadle.bench.colocation.compat")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--class", dest="member", default=BACKGROUND, help="class of the programs")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for each")
    parser.add_argument("--gate-library", type=Path)
    parser.add_argument("--no-pulses", action="store_true", help="nobody closes the turnstile")
    parser.add_argument("--json", action="store_true", dest="as_json")
    chosen = parser.parse_args(arguments)
    names = chosen.names or list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    try:
        with tempfile.TemporaryDirectory(prefix="treadle-", dir=shared_folder()) as home:
            gate = open_gate(chosen.gate_library, Path(home), "gpu")
            os.environ.update(library_environment(gate.library))
            quiet = chosen.no_pulses or chosen.member == CRITICAL
            with contextlib.nullcontext() if quiet else pulses(gate.page):
                verdicts = []
                for name in names:
                    verdicts.append(check(name, gate, chosen.member, chosen.timeout))
                    print(verdicts[-1], file=sys.stderr, flush=True)
    except TreadleError as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 1
    if chosen.as_json:
        print(json.dumps([dataclasses.asdict(verdict) for verdict in verdicts], indent=2))
    else:
        print(as_markdown(verdicts))
    return int(any(verdict.outcome in ("fail", "ungated") for verdict in verdicts))


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read().decode(errors="replace")


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_TAIL_CHARACTERS] if lines else "said nothing"


if __name__ == "__main__":
    sys.exit(main())
