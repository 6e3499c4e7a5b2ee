"""The command line. What a command does is imported when it runs.

So ``treadle --help`` answers at once: nothing heavy is read to print it.
"""

from __future__ import annotations

import sys

import typer

from treadle.cli.commands import bench, jobs, loadtest, node, profile, sharing, watching
from treadle.cli.exits import Exit
from treadle.errors import ConfigError, StartError, TreadleError

app = typer.Typer(
    name="treadle",
    help="Share GPUs between online inference, training and batch work, by priority.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (node, jobs, profile, sharing, watching, loadtest):
    app.add_typer(group.app)
app.add_typer(bench.app, name="bench")


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
