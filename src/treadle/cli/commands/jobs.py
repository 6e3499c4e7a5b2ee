"""The commands around jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.commands.options import AsJson

app = typer.Typer()


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def submit(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After --.")],
    name: Annotated[str, typer.Option(help="For people to read.")] = "",
    priority: Annotated[str, typer.Option(help="critical, normal or background.")] = "background",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="GPU memory it may have, such as 10GiB.")
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Host memory it may have.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="How many; one if there is any, unless given.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0, help="Of a GPU that it reserves, or CPU cores.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Then it is ended: 90s, 30m, 12h, 2d.")
    ] = None,
    max_kernel_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="No kernel on a GPU may run for longer.")
    ] = None,
    on_long_kernel: Annotated[
        str, typer.Option(help="What is done when one does: report, pause or stop.")
    ] = "pause",
    retries: Annotated[int, typer.Option(min=0, help="Again, if it fails.")] = 0,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB", help="Only once that job has succeeded; more than once."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=VALUE]", help="Set, or change, a variable; more than once."),
    ] = None,
    clean_env: Annotated[
        bool, typer.Option("--clean-env", help="Nothing of this environment but PATH and HOME.")
    ] = False,
    cwd: Annotated[Path | None, typer.Option(help="Folder to run in; this one.")] = None,
    array: Annotated[
        str | None,
        typer.Option(metavar="RANGE", help="A job for each number: 0-99, 0-9:3, 1,5,7."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over; its exit code.")] = False,
    as_json: AsJson = False,
) -> None:
    """Queue a command; a node runs it when there is room. Prints the job's number."""
    from treadle.cli.submit import run as queue

    queue(
        command,
        name=name,
        priority=priority,
        memory=memory,
        host_memory=host_memory,
        gpus=gpus,
        share=share,
        time_limit=time_limit,
        max_kernel_seconds=max_kernel_seconds,
        on_long_kernel=on_long_kernel,
        retries=retries,
        after=after or [],
        env=env or [],
        clean_env=clean_env,
        cwd=cwd,
        array=array,
        wait=wait,
        as_json=as_json,
    )


JobNumbers = Annotated[list[str], typer.Argument(metavar="JOB...", help="17, or 17-26.")]


@app.command()
def jobs(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Those that are over, too.")] = False,
    state: Annotated[
        list[str] | None, typer.Option(help="Only these; may be given more than once.")
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only yours.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most; the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs: those that run and wait, and why they wait."""
    from treadle.cli.jobs import jobs as run

    run(all_=all_, states=state or [], mine=mine, limit=limit, as_json=as_json)


@app.command()
def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its number.")],
    as_json: AsJson = False,
) -> None:
    """Show a job: command, place, limits, states it went through."""
    from treadle.cli.jobs import show as run

    run(job, as_json=as_json)


@app.command()
def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its number.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is over.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines.")
    ] = None,
) -> None:
    """Print what a job has written."""
    from treadle.cli.jobs import logs as run

    run(job, follow=follow, tail=tail)


@app.command()
def wait(
    numbers: JobNumbers,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds; then it exits with 124.")
    ] = None,
) -> None:
    """Wait until jobs are over. Exits as the first of them that failed."""
    from treadle.cli.jobs import wait as run

    run(numbers, timeout_seconds=timeout)


@app.command()
def cancel(numbers: JobNumbers) -> None:
    """End jobs, or take them out of the queue."""
    from treadle.cli.jobs import act

    act("cancel", numbers)


@app.command()
def pause(numbers: JobNumbers) -> None:
    """Pause jobs: they keep their memory. Those that wait are not started."""
    from treadle.cli.jobs import act

    act("pause", numbers)


@app.command()
def resume(numbers: JobNumbers) -> None:
    """Let paused jobs go on."""
    from treadle.cli.jobs import act

    act("resume", numbers)
