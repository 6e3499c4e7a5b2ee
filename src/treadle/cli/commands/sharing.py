"""The commands around the sharing of a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After --.")],
    priority: Annotated[str, typer.Option(help="critical, normal or background.")] = "background",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="GPU memory it may have, such as 10GiB.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPUs it sees, as CUDA_VISIBLE_DEVICES takes them.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="For people to read.")] = None,
    p99: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds within which 99 of 100 requests are to be answered."),
    ] = None,
    latency_from: Annotated[
        str | None,
        typer.Option(metavar="'URL METRIC'", help="Where it tells how long requests take."),
    ] = None,
) -> None:
    """Run a program under the launch gate: less urgent work waits for more urgent."""
    from treadle.cli.run import run as start

    start(
        command,
        priority=priority,
        memory=memory,
        gpus=gpu,
        name=name,
        p99=p99,
        latency_from=latency_from,
    )


@app.command()
def env(
    priority: Annotated[str, typer.Option(help="critical, normal or background.")] = "background",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="GPU memory it may have, such as 10GiB.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPUs it sees, as CUDA_VISIBLE_DEVICES takes them.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="For people to read.")] = None,
    form: Annotated[
        str, typer.Option("--format", help="sh, docker, systemd, kernelspec or json.")
    ] = "sh",
) -> None:
    """Print what another launcher has to set so that its program is gated."""
    from treadle.cli.env import run as print_env

    print_env(priority=priority, memory=memory, gpus=gpu, name=name, form=form)


@app.command()
def mode(
    gpu: Annotated[
        str | None, typer.Argument(help="Its number, or UUID; all unless given.")
    ] = None,
    wanted: Annotated[str | None, typer.Argument(metavar="MODE", help="turns or parallel.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start its jobs again instead of waiting for them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how GPUs are shared, in turns or in parallel (MPS), or change it."""
    from treadle.cli.mode import run as show_or_change

    show_or_change(gpu, wanted, restart=restart, as_json=as_json)


@app.command()
def turnstile(
    watch: Annotated[bool, typer.Option("--watch", help="Again and again.")] = False,
    knobs: Annotated[
        list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="Turn a knob.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who shares each GPU: class, busy, waiting, launches, time waited, memory."""
    from treadle.cli.turnstile import run as show

    show(watch=watch, as_json=as_json, knobs=knobs or [])
