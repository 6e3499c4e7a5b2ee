"""A program that keeps a GPU busy for a while and idle for a while, and says when.

It speaks as a role of ``treadle.bench.colocation``: ready, then a word to go, then done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

_SIDE = 8192
_AT_ONCE = 4
"""Multiplications between two looks at the clock: some milliseconds."""


def _say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main() -> int:
    """Allocate, wait for the word, make load as told, and say what was done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--on", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--off", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    try:
        import torch

        kept = torch.zeros(arguments.memory_bytes, dtype=torch.uint8, device="cuda")
        a = torch.randn(_SIDE, _SIDE, dtype=torch.bfloat16, device="cuda")
        product = torch.empty_like(a)
        torch.matmul(a, a, out=product)  # what cuBLAS does once is done now
        torch.cuda.synchronize()
        own = int(torch.cuda.memory_reserved())
    except Exception as error:  # whatever it is, it is the harness that tells it
        _say("error", reason=f"{type(error).__name__}: {error}")
        return 1
    _say("ready", pid=os.getpid(), memory_bytes=own)
    if not sys.stdin.readline():
        return 0
    began, on, launches = time.monotonic(), [], 0
    period = arguments.on + arguments.off
    while (start := time.monotonic()) < began + arguments.seconds:
        until = min(start + arguments.on, began + arguments.seconds)
        while time.monotonic() < until:
            for _ in range(_AT_ONCE):
                torch.matmul(a, a, out=product)
            torch.cuda.synchronize()
            launches += _AT_ONCE
        on.append((start, time.monotonic()))
        # Each turn begins when it is due, however long the last multiplication took.
        turns = len(on)
        time.sleep(max(0.0, began + min(turns * period, arguments.seconds) - time.monotonic()))
    _say("done", on=on, launches=launches, kept=kept.numel())
    sys.stdin.readline()  # the memory stays until the harness has looked at it
    return 0


if __name__ == "__main__":
    sys.exit(main())
