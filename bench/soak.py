"""Sends a million requests, cancels one in a hundred, and looks at every answer.

``python bench/soak.py`` serves two models that add a number to what they are sent, batches of one
in a worker of their own and of the other on whatever is asked, and counts what went wrong: errors,
and answers that belong to somebody else. ``--kill-every SECONDS`` kills a worker so often, and
``--reload-every SECONDS`` loads a model anew: a batch that was running when its worker was killed
may fail, with a reason; nothing else may.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from treadle.bench.machine import describe_machine
from treadle.bench.ownnode import OwnNode
from treadle.client.node import EncodedRequest, NodeClient, encode_request
from treadle.errors import TreadleError
from treadle.serve.tensors import from_array

_MODELS = {"one": 1.0, "two": 2.0}
_WIDTH = 16
_FACTORY = """
import numpy as np
from treadle import TensorSpec

class Adds:
    inputs = [TensorSpec("x", "FP32", (-1, 16))]
    outputs = [TensorSpec("y", "FP32", (-1, 16))]

    def __init__(self, number):
        self.number = np.float32(number)

    def __call__(self, inputs):
        return {"y": inputs["x"] + self.number}

def load(context):
    return Adds(context.parameters["number"])
"""
_ENCODED = 2048
"""Different requests, made before."""


def configuration() -> str:
    """Two models, each in a worker of its own."""
    tables = [
        f'[[model]]\nname = "{name}"\nfactory = "adds:load"\nparameters = {{ number = {number} }}\n'
        f"max_batch = 64\nshare = 0.5\nqueue_limit = 100000\np99_seconds = 5.0\n"
        for name, number in _MODELS.items()
    ]
    return "[http]\nport = 0\n[jobs]\nenabled = false\n" + "".join(tables)


class Soak:
    """Sends, cancels and counts."""

    def __init__(self, client: NodeClient, seed: int, cancel_fraction: float) -> None:
        self._client, self._random, self._cancel = client, random.Random(seed), cancel_fraction
        self.counts: Counter[str] = Counter()
        rows = [1 + n % 4 for n in range(_ENCODED)]
        self._values = [
            np.arange(n * 100, n * 100 + r * _WIDTH, dtype=np.float32).reshape(r, _WIDTH)
            for n, r in enumerate(rows)
        ]
        self._requests = [encode_request([from_array("x", value)]) for value in self._values]

    async def send(self, requests: int, tick: Any) -> None:
        """Send so many, one after the other."""
        for _ in range(requests):
            number, model = self._random.randrange(_ENCODED), self._random.choice([*_MODELS])
            if self._random.random() < self._cancel:
                await self._send_and_cancel(model, self._requests[number])
            else:
                await self._send(model, number)
            tick()

    async def _send_and_cancel(self, model: str, request: EncodedRequest) -> None:
        task = asyncio.create_task(self._client.ask(model, request))
        await asyncio.sleep(self._random.random() * 0.005)
        self.counts["answered before it was cancelled" if task.done() else "cancelled"] += 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _send(self, model: str, number: int) -> None:
        try:
            outputs = await self._client.infer(model, self._requests[number])
        except (TreadleError, OSError) as error:
            self.counts[f"failed: {str(error)[:100]}"] += 1
            return
        right = np.array_equal(outputs["y"], self._values[number] + np.float32(_MODELS[model]))
        self.counts["answered right" if right else "WRONG"] += 1


async def trouble(client: NodeClient, arguments: argparse.Namespace, counts: Counter[str]) -> None:
    """Kill workers and load models anew, as often as told."""
    chance = random.Random(arguments.seed)
    due = {
        what: seconds
        for what, seconds in (("kill", arguments.kill_every), ("reload", arguments.reload_every))
        if seconds
    }
    next_at = dict.fromkeys(due, time.monotonic())  # at once, however short the rest is
    while next_at:
        what = min(next_at, key=lambda one: next_at[one])
        await asyncio.sleep(max(0.0, next_at[what] - time.monotonic()))
        next_at[what] += due[what]
        model = chance.choice([*_MODELS])
        if what == "reload":
            await client.post(f"/v2/repository/models/{model}/load")
        else:
            status = await client.get("/treadle/v1/status")
            (about,) = [one for one in status["models"] if one["name"] == model]
            for pid in about["pids"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        counts[f"({what}ed)" if what == "reload" else "(killed)"] += 1


async def soak(arguments: argparse.Namespace, console: Console) -> Counter[str]:
    """Serve, send, and end."""
    with tempfile.TemporaryDirectory(prefix="treadle-soak-") as folder:
        file = Path(folder) / "treadle.toml"
        file.write_text(configuration())
        (Path(folder) / "adds.py").write_text(_FACTORY)
        with OwnNode(file) as node:
            async with NodeClient(node.socket, connections=arguments.clients + 8) as client:
                await node.wait_ready(client)
                work = Soak(client, arguments.seed, arguments.cancel)
                troubling = asyncio.create_task(trouble(client, arguments, work.counts))
                share = -(-arguments.requests // arguments.clients)
                with Progress(console=console, disable=not console.is_terminal) as progress:
                    bar = progress.add_task("requests", total=share * arguments.clients)
                    async with asyncio.TaskGroup() as group:
                        for _ in range(arguments.clients):
                            group.create_task(work.send(share, lambda: progress.advance(bar)))
                troubling.cancel()
                await asyncio.gather(troubling, return_exceptions=True)
                status = await client.get("/treadle/v1/status")
                work.counts["(still open at the end)"] = status["open_requests"]
    return work.counts


def main() -> int:
    """Soak and say what happened; the exit status is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description="Look at every one of a million answers.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=64, help="that send at the same time")
    parser.add_argument("--cancel", type=float, default=0.01, help="the part that is cancelled")
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--reload-every", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(highlight=False, markup=False)
    began = time.monotonic()
    try:
        counts = asyncio.run(soak(arguments, console))
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    machine = describe_machine()
    console.print(f"{machine.cpu}, {machine.cores} cores; {time.monotonic() - began:.0f} s")
    for what, count in sorted(counts.items()):
        console.print(f"{count:>9}  {what}")
    killed = "SIGKILL"  # what a batch that was running says
    bad = [
        what
        for what, count in counts.items()
        if count
        and (
            what == "WRONG"
            or what.startswith("(still")
            or (what.startswith("failed") and not (arguments.kill_every and killed in what))
        )
    ]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
