"""A role that goes wrong in the way that its first argument names; otherwise as a real one."""

from __future__ import annotations

import os
import sys
import time

from treadle.bench.colocation.arrivals import count_arrivals
from treadle.bench.colocation.codec import pack
from treadle.bench.colocation.roles.channel import Channel

HOW, KIND = sys.argv[1:3]


def go_wrong(when: str) -> None:
    if f"dies {when}" == HOW and KIND == "background":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    if f"hangs {when}" == HOW and KIND == "background":
        time.sleep(600)


channel = Channel.of_process()
print("noise on standard output")
go_wrong("loading")
channel.say("loaded")
channel.hear()
go_wrong("warming")
channel.say("ready", service_seconds=0.001, device_seconds=0.001, device="none")
while (order := channel.hear()) is not None and order["op"] == "go":
    go_wrong("starting")
    if KIND == "critical":
        stretch = (order[key] for key in ("rate", "seed", "first", "blocks"))
        arrived = count_arrivals(*stretch)
        channel.say("result", arrived=arrived, latencies=None, ended=time.monotonic())
        continue
    channel.say("running")
    go_wrong("measured")
    while (heard := channel.hear()) is not None and heard["op"] != "stop":
        pass
    go_wrong("stopping")
    channel.say("result", steps=pack([]))
