"""The commands that measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer(help="Measure.", no_args_is_help=True)


@app.command()
def serve(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.toml]", help="Start nodes with it, or use the running one."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Measure under this policy; may be given more than once."),
    ] = None,
    load: Annotated[
        float, typer.Option(min=0.01, max=2.0, help="Offered load as a part of the capacity.")
    ] = 0.9,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests/s over all models, instead.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to measure.")] = 30.0,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=PART",
            help="A model's part of the device's time in relation to the others'; 1 unless "
            "given, 0 leaves it out.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrival times.")] = 42,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to save the results as JSON; in the state folder unless given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Drive all models with a mixed open-loop Poisson load and print a table by model."""
    from treadle.cli.bench import run

    run(
        file,
        policies=policy or [],
        load=load,
        rate=rate,
        seconds=seconds,
        mix=mix or [],
        seed=seed,
        output=output,
        as_json=as_json,
    )


@app.command()
def colocation(
    cells: Annotated[
        str,
        typer.Option(
            help="Cells, patterns such as resnet20/*/gate, and sets (quick, cost, launch-bound, "
            "sweep, coop, first-kernel, mps, all), with commas between.",
        ),
    ] = "quick",
    show: Annotated[
        bool, typer.Option("--list", help="List the cells, the one that says most first, and end.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Longest slice of a cell in this run.")
    ] = 60.0,
    training_seconds: Annotated[
        float, typer.Option(min=1.0, help="The same where nothing is requested, over all runs.")
    ] = 20.0,
    min_requests: Annotated[
        int, typer.Option(min=1, help="Enough for a cell, over all runs.")
    ] = 10_000,
    out: Annotated[
        Path, typer.Option(help="Results: appended to what is there, and reported on.")
    ] = Path("colocation.jsonl"),
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables there.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the trade-off there, as SVG.")
    ] = None,
    limit_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no cell that would end later than this.")
    ] = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="Measure nothing.")] = False,
    no_baselines: Annotated[
        bool,
        typer.Option("--no-baselines", help="Leave out what the cells are compared with."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start new processes for every cell.")
    ] = False,
    gate_library: Annotated[
        Path | None, typer.Option(help="The launch gate's library, if another than treadle's.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to try it out.")] = "cuda",
    scale: Annotated[str, typer.Option(help="full, or tiny to try it out.")] = "full",
    seed: Annotated[int, typer.Option(min=0, help="Of the arrival times.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Measure how well one GPU is shared: critical requests beside training.

    A cell is critical/background/mode. Every slice is added to the results file; another run
    goes on where one ended.
    """
    from treadle.bench.colocation.settings import Settings
    from treadle.cli.colocation import list_cells, parse_scale, run

    if show:
        list_cells()
        return
    settings = Settings(
        cells=cells,
        seconds=seconds,
        training_seconds=training_seconds,
        min_requests=min_requests,
        out=out,
        as_json=as_json,
        markdown=markdown,
        plot=plot,
        limit_seconds=limit_seconds,
        report_only=report_only,
        baselines=not no_baselines,
        fresh=fresh,
        gate_library=gate_library,
        device=device,
        scale=parse_scale(scale),
        seed=seed,
    )
    raise typer.Exit(run(settings))
