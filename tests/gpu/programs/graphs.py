"""Captures a CUDA graph and replays it many times."""

from __future__ import annotations

import sys
from typing import Any

import torch

cuda: Any = torch.cuda  # not all of it has types

replays = int(sys.argv[1])
x = torch.zeros(512, device="cuda")
side = cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    x.add_(0)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(10):
        x.add_(1)
for _ in range(replays):
    graph.replay()
counted = float(x[0])
assert counted == 10 * replays, counted
print("done", replays, flush=True)
sys.stdin.read()
