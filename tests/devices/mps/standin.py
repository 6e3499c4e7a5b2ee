"""A program that stands in for nvidia-cuda-mps-control, and what it is told to do wrong.

It keeps to the real one's words: ``-d`` leaves a daemon behind that writes down its pid, and
commands are read from standard input. What it shall do lies in files beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treadle.devices.mps import MpsDaemon, MpsTimeouts

GPU = "GPU-8f3b1c2e-0000-1111-2222-333344445555"
TIMEOUTS = MpsTimeouts(start=30.0, command=30.0, end=30.0)
"""Nothing here is meant to take so long."""

_PROGRAM = r"""#!/bin/sh
here=HERE
pipe=$CUDA_MPS_PIPE_DIRECTORY
file=$pipe/nvidia-cuda-mps-control.pid
told() { cat "$here/$1" 2>/dev/null; }
mkdir "$here/busy" 2>/dev/null || echo "$$" >>"$here/overlaps"
trap 'rmdir "$here/busy" 2>/dev/null' EXIT
process() {
    if [ "$(told deaf)" ]; then trap '' TERM; fi
    exec setsid sleep 600 </dev/null >/dev/null 2>&1
}
if [ "$1" = -d ]; then
    env >"$here/environment"
    case $(told start) in
        hang) sleep 600; exit 0 ;;
        refuse) echo "no such GPU"; exit 1 ;;
        silent) exit 0 ;;
        dies) echo "cannot open a socket" >"$CUDA_MPS_LOG_DIRECTORY/control.log"
            sleep 0 & wait $!; echo $! >"$file"; exit 0 ;;
        leaves) process & echo $! >>"$here/started"; sleep 600; exit 0 ;;
    esac
    process & daemon=$!
    echo $daemon >>"$here/started"
    if [ "$(told serves)" ]; then
        process & echo $! >"$here/servers"
        echo $! >>"$here/started"
    fi
    : >"$pipe/control"
    echo $daemon >"$file"
    exit 0
fi
read -r said
echo "$said" >>"$here/said"
set -- $said
daemon=$(cat "$file" 2>/dev/null)
if ! kill -0 "$daemon" 2>/dev/null; then
    echo "Cannot find MPS control daemon process"; exit 1
fi
case $(told "on.$1") in
    hang) sleep 600 ;;
    refuse) echo "no, not $1"; exit 3 ;;
    garbage) echo "Segmentation fault (core dumped)"; exit 0 ;;
    dies) kill -9 "$daemon"; exit 1 ;;
    waits) cat "$here/gate" ;;
esac
case $1 in
    get_server_list) told servers || true ;;
    get_server_status) told status || echo ACTIVE ;;
    get_client_list) told "clients.$2" || true ;;
    terminate_client) grep -vx "$3" "$here/clients.$2" >"$here/left"
        mv "$here/left" "$here/clients.$2" ;;
    quit) if [ ! "$(told deaf)" ]; then kill "$daemon" $(told servers); fi ;;
    *) echo "Unknown command $1"; exit 1 ;;
esac
"""


class StandIn:
    """The program, and the files that tell it what to do."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        self.program = place / "nvidia-cuda-mps-control"
        self.program.write_text(_PROGRAM.replace("HERE", str(place)))
        self.program.chmod(0o755)

    def daemon(
        self, folder: Path, timeouts: MpsTimeouts = TIMEOUTS, gpus: tuple[str, ...] = (GPU,)
    ) -> MpsDaemon:
        return MpsDaemon(folder, gpus, control=self.program, timeouts=timeouts)

    def put(self, name: str, content: str) -> None:
        (self.place / name).write_text(content)

    def when(self, command: str, what: str) -> None:
        """What happens on a command: hang, refuse, garbage, dies, waits; nothing if empty."""
        self.put(f"on.{command}", what)

    def lines(self, name: str) -> list[str]:
        """Of a file that it wrote; none if it did not."""
        with suppress(FileNotFoundError):
            return (self.place / name).read_text().splitlines()
        return []

    @property
    def started(self) -> list[int]:
        """Every process that it has left behind, in their order."""
        return [int(line) for line in self.lines("started")]

    @property
    def environment(self) -> dict[str, str]:
        """Of the daemon that it started last."""
        pairs = (line.partition("=") for line in self.lines("environment"))
        return {name: value for name, _, value in pairs}

    def bury(self) -> None:
        """End what is left of it."""
        for pid in self.started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def bystander(environment: dict[str, str] | None = None) -> Iterator[int]:
    """A process that has nothing to do with anything here."""
    process = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
