"""NCCL between two GPUs of one process: all-reduces by one thread, or nn.DataParallel."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.cuda.nccl

nccl: Any = torch.cuda.nccl  # it has no types
kind, rounds = sys.argv[1], int(sys.argv[2])


def all_reduce() -> None:
    weights = [torch.full((1024, 1024), 1 / 1024, device=f"cuda:{gpu}") for gpu in (0, 1)]
    for _ in range(rounds):
        parts = [torch.full_like(weight, gpu + 1.0) @ weight for gpu, weight in enumerate(weights)]
        nccl.all_reduce(parts)
        sums = [float(part[-1, -1]) for part in parts]
        assert sums == [3.0, 3.0], sums


def data_parallel() -> None:
    layer = torch.nn.Linear(512, 512).to("cuda:0")
    model = torch.nn.DataParallel(layer, device_ids=[0, 1])
    x = torch.randn(256, 512, device="cuda:0")
    for _ in range(rounds):
        y = model(x)
        y.square().mean().backward()
        torch.testing.assert_close(y, layer(x), rtol=1e-2, atol=1e-2)


{"all_reduce": all_reduce, "data_parallel": data_parallel}[kind]()
print("done", rounds, flush=True)
sys.stdin.read()
