"""The server: answers one request after another, in the order and at the times given."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.bench.colocation.arrivals import draw_arrivals
from treadle.bench.colocation.codec import pack
from treadle.bench.colocation.gate import Marker, NoMarker, join_as_critical, leave
from treadle.bench.colocation.roles.channel import Channel
from treadle.bench.colocation.roles.lanes import Lane, open_lane
from treadle.bench.colocation.workloads import Scale

_SPIN_SECONDS = 2e-3
"""Before an arrival the processor is kept awake for so long: waking up takes its time."""
_WARM_UPS = 20
_SERVICE_SAMPLES = 100


class Server:
    """A model on a lane, which it serves requests with."""

    def __init__(self, lane: Lane, start: Callable[[], None]) -> None:
        """Serve with ``start``, which puts the work of a request on the lane."""
        self._lane = lane
        self._start = start

    def answer(self) -> None:
        """Run one request to its end, found by asking the device over and over."""
        self._start()
        self._lane.close()
        while not self._lane.finished():
            pass

    def measure_service(self) -> tuple[float, float]:
        """Median seconds of a request alone: for the host, and on the device."""
        for _ in range(_WARM_UPS):
            self.answer()
        on_host, on_device = [], []
        for _ in range(_SERVICE_SAMPLES):
            began = time.monotonic()
            self.answer()
            on_host.append(time.monotonic() - began)
        for _ in range(_SERVICE_SAMPLES):
            first = self._lane.stamp()
            self._start()
            last = self._lane.stamp()
            self._lane.reached(last)
            on_device.append(self._lane.between(first, last))
        return float(np.median(on_host)), float(np.median(on_device))

    def serve(
        self,
        arrivals: NDArray[np.float64],
        zero: float,
        end: float,
        marker: Marker,
        answered: Callable[[float], None] | None = None,
    ) -> NDArray[np.float64]:
        """Answer every request, as long as there is time.

        Args:
            arrivals: When each is due, seconds from ``zero``, ascending.
            zero: Monotonic time of the schedule's start.
            end: Monotonic time after which no request is begun.
            marker: Told when the server is busy. It stays busy while a request waits.
            answered: Told the seconds of each request.

        Returns:
            Seconds from when each was due to its end; shorter than ``arrivals`` if time ran out.
        """
        latencies = np.empty(len(arrivals))
        busy = False
        for number, due in enumerate((arrivals + zero).tolist()):
            now = time.monotonic()
            if now < due:
                if busy:
                    marker.idle()
                    busy = False
                _wait_until(due)
            elif now > end:
                latencies = latencies[:number]
                break
            if not busy:
                marker.busy()
                busy = True
            self.answer()
            latencies[number] = time.monotonic() - due
            if answered is not None:
                answered(latencies[number])
        if busy:
            marker.idle()
        return latencies


def run(model: str, scale: Scale, device: str, channel: Channel) -> None:
    """Be a critical process until told to end."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    channel.say("loaded")
    if channel.hear() is None:
        return
    from treadle.bench.colocation.roles.models import build

    torch.manual_seed(0)
    lane = open_lane(device)
    with torch.inference_mode(), lane.use():
        server = Server(lane, build(model, scale, device, lane))
        on_host, on_device = server.measure_service()
        channel.say(
            "ready",
            service_seconds=on_host,
            device_seconds=on_device,
            torch=torch.__version__,
            device=torch.cuda.get_device_name() if device == "cuda" else "cpu",
        )
        while (order := channel.hear()) is not None and order["op"] != "end":
            if order["op"] == "go":
                channel.say("result", **_serve(server, order))
            else:
                leave()


def _serve(server: Server, order: Mapping[str, Any]) -> dict[str, Any]:
    page = order["page"]
    marker = NoMarker() if page is None else join_as_critical(page, order["name"])
    arrivals = draw_arrivals(order["rate"], order["seed"], order["first"], order["blocks"])
    with collector_paused():
        latencies = server.serve(arrivals, order["zero"], order["end"], marker)
    return {
        "arrived": len(arrivals),
        "latencies": pack(latencies),
        "ended": time.monotonic(),
    }


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from making anything late."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _wait_until(due: float) -> None:
    """Sleep, then spin: exact to a microsecond or two."""
    early = due - time.monotonic() - _SPIN_SECONDS
    if early > 0:
        time.sleep(early)
    while time.monotonic() < due:
        pass
