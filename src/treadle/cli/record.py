"""``treadle record`` and ``treadle replay``: readings into a file, and out of it again."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

from treadle.cli.top import find_devices_by, wait_for_devices
from treadle.cli.top import run as top
from treadle.errors import TreadleError
from treadle.monitor import Monitor
from treadle.monitor.recording import Recorder, read
from treadle.monitor.replay import seconds_of

_BLOCK_SECONDS = 1.0


def record(file: Path, *, seconds: float | None, devices: str | None) -> None:
    """Record until the time is up, or Ctrl-C.

    Raises:
        TreadleError: If nothing can be read, or the file not written.
    """
    wanted = [name.strip() for name in devices.split(",")] if devices else []
    with Recorder(file, wanted) as recorder, Monitor(find_devices_by()) as monitor:
        wait_for_devices(monitor)
        began = time.monotonic()
        try:
            while True:
                left = _BLOCK_SECONDS
                if seconds is not None:
                    left = min(left, began + seconds - time.monotonic())
                if left <= 0:
                    break
                time.sleep(left)
                recorder.follow(monitor)
        except KeyboardInterrupt:
            recorder.follow(monitor)
        if not recorder.samples:
            raise TreadleError(monitor.snapshot().trouble or "there was nothing to record")
        typer.echo(
            f"{file}: {recorder.samples} samples in {time.monotonic() - began:.1f} s, "
            f"{recorder.nbytes / 1024:.0f} KiB"
        )


def replay(file: Path, *, speed: float, summary: bool, once: bool) -> None:
    """Show a recording as ``treadle top`` shows the present, or say what is in it.

    Where nobody watches, it says that.

    Raises:
        TreadleError: If it cannot be read.
    """
    recording = read(file)
    if summary or not (once or sys.stdout.isatty()):
        samples = sum(len(s) for part in recording.parts for s in part.samples.values())
        typer.echo(f"made by   {recording.header.made_by}")
        typer.echo(f"length    {seconds_of(recording):.1f} s in {len(recording.parts)} parts")
        typer.echo(f"samples   {samples}")
        names = {d.uuid: d.name for part in recording.parts for d in part.segment.devices}
        for uuid, name in names.items():
            typer.echo(f"device    {uuid}  {name}")
        typer.echo(f"missing   {recording.missing or 'nothing'}")
        return
    top(once=once, devices=f"treadle.monitor.replay:devices_from={speed:g}:{file.resolve()}")
