"""``treadle turnstile``: each GPU's page, seen from outside."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from treadle.devices.device import DeviceError, DeviceProcess
from treadle.devices.nvidia import compute_processes
from treadle.errors import TreadleError
from treadle.turnstile import Member, PageSnapshot, Turnstile, TurnstileError, default_folder

_REFRESH_SECONDS = 0.25
_COLUMNS = (
    ("MEMBER", "left"),
    ("PID", "right"),
    ("CLASS", "left"),
    ("STATE", "left"),
    ("LAUNCHES", "right"),
    ("GPU TIME", "right"),
    ("WAITED", "right"),
    ("MEMORY", "right"),
    ("LIMIT", "right"),
)


def run(*, watch: bool, as_json: bool, knobs: list[str]) -> None:
    """Print every page of the turnstile folder, once or again and again.

    Raises:
        TreadleError: If there is no page, or a knob is wrong.
    """
    pages = _open_pages()
    for assignment in knobs:
        _set_knob(pages, assignment)
    if as_json:
        typer.echo(orjson.dumps([_plain(_look(page)) for page in pages]).decode())
    elif watch:
        with Live(_view(pages), console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                live.update(_view(pages), refresh=True)
                time.sleep(_REFRESH_SECONDS)
    else:
        Console().print(_view(pages))


@dataclass(frozen=True, slots=True)
class _Look:
    """A page, and who uses its GPU past it."""

    snapshot: PageSnapshot
    ungated: list[DeviceProcess]
    ungated_unknown: str
    """Why nothing is known of them; empty if it is."""


def _look(page: Turnstile) -> _Look:
    snapshot = page.snapshot()
    members = {member.pid for member in snapshot.members}
    try:
        processes = compute_processes(snapshot.uuid)
    except DeviceError as error:
        return _Look(snapshot, [], str(error))
    return _Look(snapshot, [p for p in processes if p.pid not in members], "")


def _open_pages() -> list[Turnstile]:
    folder, pages = default_folder(), []
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise TreadleError(f"cannot look into {folder}: {error.strerror}") from None
    for name in names:
        try:
            pages.append(Turnstile.open(folder, name, create=False))
        except TurnstileError as error:
            typer.echo(f"treadle turnstile: {error}", err=True)
    if names and not pages:
        raise TreadleError(f"no turnstile in {folder} can be used")
    if not names:
        raise TreadleError(
            f"no turnstile in {folder}: one is made when a program first uses a GPU under "
            "treadle run"
        )
    return pages


def _set_knob(pages: list[Turnstile], assignment: str) -> None:
    name, equals, value = assignment.partition("=")
    if not (equals and value.lstrip("-").isdigit()):
        raise TreadleError(f"--set {assignment!r}; allowed: KNOB=WHOLE NUMBER")
    for page in pages:
        page.set_knob(name, int(value))


def _view(pages: list[Turnstile]) -> Group:
    parts: list[Text | Table] = []
    for look in map(_look, pages):
        snapshot = look.snapshot
        closed = ", ".join(sorted(priority.label for priority in snapshot.closed_for))
        parts += [
            Text(f"{snapshot.uuid}  closed for: {closed or 'nobody'}", style="bold"),
            _table(look),
            Text(look.ungated_unknown, "dim"),
            Text("  ".join(f"{name}={value}" for name, value in snapshot.knobs.items()), "dim"),
            Text(),
        ]
    return Group(*parts)


def _table(look: _Look) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, side in _COLUMNS:
        table.add_column(
            title, justify="right" if side == "right" else "left", no_wrap=title != "MEMBER"
        )
    for member in look.snapshot.members:
        limit = member.memory_limit_bytes
        table.add_row(
            member.name or f"#{member.index}",
            str(member.pid),
            "observer" if member.priority is None else member.priority.label,
            _state(member),
            f"{member.launches:,}",
            f"{member.predicted_seconds:.1f} s",
            f"{member.waited_seconds + member.budget_waited_seconds:.1f} s",
            f"{member.memory_used_bytes / 2**30:.2f} GiB",
            "-" if limit is None else f"{limit / 2**30:.2f} GiB",
        )
    for process in look.ungated:
        memory = process.memory_bytes
        table.add_row(
            *(process.name, str(process.pid), "", "not gated", "", "", ""),
            "-" if memory is None else f"{memory / 2**30:.2f} GiB",
            style="yellow",
        )
    return table


def _state(member: Member) -> str:
    if member.held:
        return "held"
    if member.waiting:
        return "waits"
    return "busy" if member.busy or member.in_flight_seconds > 0 else "idle"


def _plain(look: _Look) -> dict[str, Any]:
    plain = asdict(look.snapshot)
    plain["ungated"] = (
        None
        if look.ungated_unknown
        else [{"pid": p.pid, "name": p.name, "memory_bytes": p.memory_bytes} for p in look.ungated]
    )
    plain["ungated_unknown"] = look.ungated_unknown
    plain["closed_for"] = sorted(priority.label for priority in look.snapshot.closed_for)
    for member in plain["members"]:
        priority = member["priority"]
        member["priority"] = None if priority is None else priority.label
    return plain
