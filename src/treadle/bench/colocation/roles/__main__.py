"""Start a role: ``python -m treadle.bench.colocation.roles KIND NAME DEVICE SCALE``."""

from __future__ import annotations

import sys
import traceback

from treadle.bench.colocation.gate import join_as_critical
from treadle.bench.colocation.roles import background, critical
from treadle.bench.colocation.roles.channel import Channel
from treadle.bench.colocation.workloads import Scale


def main(arguments: list[str]) -> int:
    """Be a role. What goes wrong is told to the harness and ends the process."""
    kind, name, device, scale = arguments
    channel = Channel.of_process()
    try:
        if kind == "critical":
            critical.run(name, Scale(scale), device, channel)
        elif kind == "background":
            background.run(name, Scale(scale), device, channel)
        else:
            be_silent(name, channel)
    except BrokenPipeError:
        return 1
    except Exception as error:
        traceback.print_exc()
        channel.say("error", reason=f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    return 0


def be_silent(page: str, channel: Channel) -> None:
    """Be registered as critical and never ask for anything."""
    channel.say("loaded")
    if channel.hear() is None:
        return
    member = join_as_critical(page, "silent")
    channel.say("ready")
    while channel.hear() is not None:
        pass
    del member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
