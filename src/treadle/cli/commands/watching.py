"""The commands that look at devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()


@app.command()
def devices(as_json: AsJson = False) -> None:
    """Show the GPUs, or the CPU, and which mechanisms to share them work here, or why not."""
    from treadle.cli.devices import run

    run(as_json=as_json)


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Watch every GPU and who is on it: activity, memory, power, waiting tasks."""
    from treadle.cli.top import run as show

    show(once=once)


@app.command()
def record(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Added to if it is there.")],
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How long; until Ctrl-C unless given.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="Numbers or UUIDs, with commas between; all unless given.")
    ] = None,
) -> None:
    """Record what every device reads into FILE."""
    from treadle.cli.record import record as run

    run(file, seconds=seconds, devices=devices)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From treadle record.")],
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000.0, help="Seconds of the recording in one.")
    ] = 1.0,
    summary: Annotated[bool, typer.Option("--summary", help="Only say what is in it.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Show a recording as treadle top shows the present."""
    from treadle.cli.record import replay as run

    run(file, speed=speed, summary=summary, once=once)
