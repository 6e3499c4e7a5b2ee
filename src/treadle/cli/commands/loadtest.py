"""The command that puts a load on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()


@app.command()
def loadtest(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL[:KEY=VALUE,...]...",
            help="What is asked; rate, p99, priority and input may be given for each model.",
        ),
    ],
    rate: Annotated[
        str | None,
        typer.Option(metavar="R", help="Requests/s to each model; with --find, to begin with."),
    ] = None,
    find: Annotated[
        bool,
        typer.Option("--find", help="Find the highest rate at which every objective holds."),
    ] = False,
    p99: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="Objective: 99 of 100 requests answered within. The node's own unless given.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="How long to measure, or to try each rate.")
    ] = 10.0,
    warm_up: Annotated[
        float, typer.Option(min=0.0, help="Seconds before that, which are not counted.")
    ] = 2.0,
    arrivals: Annotated[str, typer.Option(help="constant, poisson, bursty or trace.")] = "poisson",
    burst: Annotated[
        str,
        typer.Option(
            metavar="FACTOR:SECONDS:PERIOD", help="Of bursty arrivals, whose mean is kept."
        ),
    ] = "3:1:10",
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Arrivals to play again; also looked for in TREADLE_DATA."
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="Heading of its arrival times; the first unless given.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(metavar="BEGIN:END", help="Only these of the trace's seconds.")
    ] = None,
    peak: Annotated[
        bool, typer.Option("--peak", help="Rates are of the trace's busiest second, not its mean.")
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            metavar="[NAME=]VALUE",
            help="As for infer; several are sent in turn. Without, the model's examples, or "
            "random ones.",
        ),
    ] = None,
    pool: Annotated[int, typer.Option(min=1, help="How many random inputs.")] = 32,
    json_bodies: Annotated[
        bool, typer.Option("--json-bodies", help="Send tensors as JSON and not as binary data.")
    ] = False,
    priority: Annotated[
        str | None, typer.Option(help="Lower the class: critical, normal or background.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which no answer is wanted any more, which the server is told; "
            "10, untold, unless given."
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option(min=0, help="At most so many at a time, each process; 0: no limit.")
    ] = 1000,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Send from so many processes.")] = 1,
    precision: Annotated[
        float, typer.Option(min=0.005, max=1.0, help="Of the rate that is found, as a part of it.")
    ] = 0.05,
    max_rate: Annotated[
        float, typer.Option(min=0.001, help="Highest rate to try, all models together.")
    ] = 100_000.0,
    seed: Annotated[int, typer.Option(min=0, help="Of arrival times and random inputs.")] = 42,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Another server of the protocol, not this node."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to save the results as JSON; in the state folder unless given."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="Draw latency against rate, or over time."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put an open-loop load on models, or find the highest rate at which they keep their P99.

    Latency counts from when a request was due. What is refused, fails, times out or is answered
    wrong misses the objective.
    """
    from treadle.cli.loadtest import Options, run

    options = Options(
        models=tuple(models),
        rate=rate,
        find=find,
        p99=p99,
        seconds=seconds,
        warm_up=warm_up,
        arrivals=arrivals,
        burst=burst,
        trace=trace,
        column=column,
        window=window,
        peak=peak,
        inputs=tuple(inputs or ()),
        pool=pool,
        json_bodies=json_bodies,
        priority=priority,
        timeout=timeout,
        connections=connections,
        processes=processes,
        precision=precision,
        max_rate=max_rate,
        seed=seed,
        url=url,
        output=output,
        plot=plot,
        as_json=as_json,
    )
    raise typer.Exit(run(options))
