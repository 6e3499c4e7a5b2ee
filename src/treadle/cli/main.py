"""The commands and their options. What a command does is imported when it runs.

So ``treadle --help`` answers at once: nothing heavy is read to print it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.exits import Exit
from treadle.errors import ConfigError, StartError, TreadleError

app = typer.Typer(
    name="treadle",
    help="Share GPUs between online inference, training and batch work, by priority.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="Measure.", no_args_is_help=True)
app.add_typer(bench, name="bench")

ConfigFile = Annotated[Path, typer.Argument(metavar="FILE.toml", help="Configuration file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def up(
    file: ConfigFile,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="HTTP port; 0 picks a free one.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="fifo or priority.")] = None,
) -> None:
    """Start a node and serve the models of FILE.toml until told to stop."""
    from treadle.cli.up import run

    raise typer.Exit(run(file, port=port, policy=policy))


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
) -> None:
    """Run a program under the launch gate: less urgent work waits for more urgent."""
    from treadle.cli.run import run as start

    start(command, priority=priority, memory=memory, gpus=gpu, name=name)


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


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def submit(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After --.")],
    name: Annotated[str, typer.Option(help="For people to read.")] = "",
    priority: Annotated[str, typer.Option(help="critical, normal or background.")] = "background",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="GPU memory it may have, such as 10GiB.")
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
        gpus=gpus,
        share=share,
        time_limit=time_limit,
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


@bench.command()
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


@bench.command()
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


def main() -> None:
    """Run the command line; every expected error is one line and an exit code."""
    try:
        app(standalone_mode=True)
    except ConfigError as error:
        _fail(error, Exit.CONFIG)
    except StartError as error:
        _fail(error, Exit.CANNOT_START)
    except ConnectionError as error:
        _fail(error, Exit.NOT_RUNNING)
    except TreadleError as error:
        _fail(error, Exit.FAILED)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _fail(error: Exception, code: Exit) -> None:
    typer.echo(f"treadle: {error}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
