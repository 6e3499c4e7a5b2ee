"""A rank of a data-parallel training, which goes on until a file is there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed

signal.alarm(600)  # a rank that hangs outlives its launcher otherwise
end = Path(sys.argv[1])
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)
    ).cuda(),
    device_ids=[rank],
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
steps = 0
told = torch.zeros(1, device="cuda")
while not told.item():  # what rank 0 has seen, so that all make the same number of steps
    for _ in range(10):
        model(torch.randn(256, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    steps += 10
    told.fill_(float(end.exists()))
    distributed.broadcast(told, 0)
    if rank == 0 and steps == 10:
        print("ready", flush=True)
here = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
there = here.clone()
distributed.all_reduce(there)
apart = float((there - distributed.get_world_size() * here).abs())
distributed.destroy_process_group()
assert apart < 1e-6, f"the ranks differ by {apart}"
if rank == 0:
    print("done", steps, flush=True)
