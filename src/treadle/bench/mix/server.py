"""A small model server that can put its own load on itself.

``python -m treadle.bench.mix.server --model resnet --port 8001 --objective 0.01`` answers ``POST
/infer``, ``GET /health`` and ``GET /metrics``. With ``--rate`` it waits for ``POST /start`` with
the monotonic time at which its load begins, and at the end writes every latency to ``--out``.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import treadle
from treadle.bench.colocation.gate import Marker, NoMarker
from treadle.bench.colocation.roles.critical import Server, collector_paused
from treadle.bench.colocation.roles.lanes import Lane, open_lane
from treadle.bench.colocation.workloads import Scale
from treadle.bench.mix.load import Burst, draw
from treadle.bench.mix.outcome import write_arrays
from treadle.bench.mix.web import Metrics, Web

DRAIN_SECONDS = 10.0
"""After the last arrival, for requests that still wait. What is left then counts as late."""
_SWITCH_SECONDS = 2e-4
"""How long a thread that writes the page of metrics may keep a request waiting."""


class CriticalMarker:
    """Marks work as a server does that was written for it: ``with treadle.critical()``."""

    def __init__(self) -> None:
        self._marked = ExitStack()

    def busy(self) -> None:
        self._marked.enter_context(treadle.critical())

    def idle(self) -> None:
        self._marked.close()


class LockedServer(Server):
    """Answers one request at a time, whichever thread asks."""

    def __init__(self, lane: Lane, start: Callable[[], None]) -> None:
        super().__init__(lane, start)
        self._lock = threading.Lock()

    def answer(self) -> None:
        with self._lock:
            super().answer()


def serve(arguments: argparse.Namespace) -> None:
    """Be the server until the process is ended."""
    import torch

    from treadle.bench.colocation.roles.models import build

    device, scale = arguments.device, Scale(arguments.scale)
    if device == "cpu":
        torch.set_num_threads(1)
    sys.setswitchinterval(_SWITCH_SECONDS)
    torch.manual_seed(0)
    lane = open_lane(device)
    metrics = Metrics(arguments.objective)
    with torch.inference_mode(), lane.use():
        server = LockedServer(lane, build(arguments.model, scale, device, lane))
        on_host, on_device = server.measure_service()

        def infer() -> None:
            marker = _marker(arguments)
            with torch.inference_mode(), lane.use():
                marker.busy()
                server.answer()
                marker.idle()

        web = Web(arguments.port, infer, metrics)
        print(f"port {web.port}", flush=True)
        web.started.wait()
        if arguments.rate is not None:
            arrivals = draw(arguments.rate, arguments.burst, arguments.seed, arguments.seconds)
            latencies = _load(server, arrivals, web.zero, arguments, metrics)
            write_arrays(
                arguments.out,
                due=arrivals,
                latencies=latencies,
                service=np.array([on_host, on_device]),
            )
        threading.Event().wait()


def _load(
    server: Server,
    arrivals: NDArray[np.float64],
    zero: float,
    arguments: argparse.Namespace,
    metrics: Metrics,
) -> NDArray[np.float64]:
    zero = max(zero, time.monotonic())  # who is told late begins late, and not with a queue
    end = zero + arguments.seconds + DRAIN_SECONDS
    with collector_paused():
        return server.serve(arrivals, zero, end, _marker(arguments), metrics.observe)


def _marker(arguments: argparse.Namespace) -> Marker:
    return CriticalMarker() if arguments.cooperative else NoMarker()


def parser() -> argparse.ArgumentParser:
    """What it may be told."""
    found = argparse.ArgumentParser(description="A small model server.")
    found.add_argument("--model", required=True, help="resnet, encoder, decoder or probe")
    found.add_argument("--port", type=int, required=True)
    found.add_argument("--objective", type=float, required=True, metavar="SECONDS")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--scale", choices=[str(scale) for scale in Scale], default="full")
    found.add_argument("--cooperative", action="store_true", help="mark work as critical")
    found.add_argument("--rate", type=float, help="requests per second that it sends itself")
    found.add_argument("--seconds", type=int, default=60)
    found.add_argument("--burst", type=Burst.parse, action="append", default=[])
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--out", type=Path, help="file for the latencies")
    found.add_argument("--limit-seconds", type=float, help="it lives no longer than this")
    return found


def end_after(seconds: float | None) -> None:
    """End this process after so long, whatever it does then."""
    if seconds is not None:
        timer = threading.Timer(seconds, os._exit, (1,))
        timer.daemon = True
        timer.start()


def main() -> int:
    """Be a server as the command line says."""
    arguments = parser().parse_args()
    if arguments.rate is not None and arguments.out is None:
        parser().error("--rate needs --out")
    end_after(arguments.limit_seconds)
    serve(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
