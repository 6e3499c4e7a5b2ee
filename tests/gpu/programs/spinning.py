"""Counts with short kernels; after a few, one that spins for so many seconds comes in between."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import torch

cuda: Any = torch.cuda  # its functions have no types
spin = cuda._sleep  # noqa: SLF001 - the only kernel of PyTorch that just takes time
seconds = float(sys.argv[1])
start, end = (cuda.Event(enable_timing=True) for _ in range(2))
spin(1_000_000)
start.record()
spin(20_000_000)
end.record()
end.synchronize()
cycles_per_second = 20_000_000 / (start.elapsed_time(end) / 1e3)
x = torch.zeros(1024, device="cuda")
for number in itertools.count(1):
    x.add_(1)
    torch.cuda.synchronize()
    print("counted", number, flush=True)
    if number == 3:
        spin(int(seconds * cycles_per_second))
        torch.cuda.synchronize()
        print("spun", flush=True)
    time.sleep(0.01)
