"""The trainer: takes step after step until told to stop, and says when each was done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from treadle.bench.colocation.codec import pack
from treadle.bench.colocation.roles.channel import Channel
from treadle.bench.colocation.roles.critical import collector_paused
from treadle.bench.colocation.roles.lanes import Lane, open_lane
from treadle.bench.colocation.workloads import BACKGROUNDS, Scale

_AHEAD = 2
"""Steps that may be queued: a trainer that reads its loss now and then is no further ahead."""
_STEADY = 2
"""Steps after which the trainer says that it runs."""


def train(
    step: Callable[[], Any], lane: Lane, stop: Callable[[], bool], on_steady: Callable[[], None]
) -> list[float]:
    """Take steps until ``stop`` and return when the device finished each, monotonic seconds."""
    finished: list[float] = []
    queued: deque[Any] = deque()
    while not stop():
        step()
        queued.append(lane.stamp())
        if len(queued) > _AHEAD:
            finished.append(lane.reached(queued.popleft()))
            if len(finished) == _STEADY:
                on_steady()
    finished.extend(lane.reached(stamp) for stamp in queued)
    return finished


def run(name: str, scale: Scale, device: str, channel: Channel) -> None:
    """Be a background process until told to end."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    channel.say("loaded")
    if channel.hear() is None:
        return
    from treadle.bench.colocation.roles.trainers import build

    lane = open_lane(device)
    with lane.use():
        step = build(BACKGROUNDS[name], scale, device, lane)
        on_gpu = device == "cuda"
        channel.say(
            "ready",
            memory_bytes=torch.cuda.max_memory_reserved() if on_gpu else 0,
            torch=torch.__version__,
            device=torch.cuda.get_device_name() if on_gpu else "cpu",
        )
        while (order := channel.hear()) is not None and order["op"] == "go":
            lane.drain()
            with collector_paused():
                finished = train(
                    step, lane, stop=channel.has_order, on_steady=lambda: channel.say("running")
                )
            stop = channel.hear()
            if stop is None:
                return
            zero = stop["zero"]
            channel.say("result", steps=pack([moment - zero for moment in finished]))
