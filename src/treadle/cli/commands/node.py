"""The commands around a node: start it, look at it, ask it, stop it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE.toml", help="Configuration file.")]


@app.command()
def up(
    file: ConfigFile,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="HTTP port; 0 picks a free one.")
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="gRPC port; 0 picks a free one.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="fifo or priority.")] = None,
) -> None:
    """Start a node and serve the models of FILE.toml until told to stop."""
    from treadle.cli.up import run

    raise typer.Exit(run(file, port=port, grpc_port=grpc_port, policy=policy))


@app.command()
def check(file: ConfigFile) -> None:
    """Check a configuration file without starting anything."""
    from treadle.cli.up import check as run

    run(file)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the running node: addresses, readiness, models."""
    from treadle.cli.show import status as run

    run(as_json=as_json)


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models of the running node."""
    from treadle.cli.show import models as run

    run(as_json=as_json)


@app.command()
def infer(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]VALUE",
            help="A file (.wav, .png, .jpg, .npy, .json or anything as bytes), or JSON. "
            "Without, the model's first example is sent.",
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="Lower the class: critical, normal or background.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which no answer is wanted any more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send one request to a model and print the answer."""
    from treadle.cli.infer import run

    run(model, inputs or [], priority=priority, timeout_seconds=timeout, as_json=as_json)


@app.command()
def down(
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it has ended.")] = 60.0,
    now: Annotated[bool, typer.Option("--now", help="Do not finish accepted requests.")] = False,
) -> None:
    """Stop the running node: it finishes what it accepted, then ends."""
    from treadle.cli.show import down as run

    run(timeout_seconds=timeout, now=now)


@app.command()
def version() -> None:
    """Print the version."""
    import treadle

    typer.echo(f"treadle {treadle.__version__}")
