"""The command that measures one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()


@app.command()
def profile(
    model: Annotated[str, typer.Argument(help="Name of the model in the configuration.")],
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE.toml", help="Configuration file.")
    ] = Path("treadle.toml"),
    rows: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes, with commas between; powers of 2 and max_batch unless given."
        ),
    ] = None,
    sm_share: Annotated[
        str | None,
        typer.Option(
            help="Shares of a GPU's SMs, with commas between; 0.25,0.5,1 unless given, where "
            "that can be."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="How long each is run, at least 20 times.")
    ] = 1.0,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write the profile; where the node finds it unless given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how long a model's batches take, by size, for the node to go by."""
    from treadle.cli.profile import run

    run(
        model,
        file=config,
        rows=rows,
        shares=sm_share,
        seconds=seconds,
        output=output,
        as_json=as_json,
    )
