"""Two stages on two GPUs in one process, with copies between them, held against one GPU."""

from __future__ import annotations

import copy
import sys

import torch

steps = int(sys.argv[1])
torch.manual_seed(1)
torch.set_float32_matmul_precision("highest")
stages = [torch.nn.Linear(1024, 1024).to(f"cuda:{gpu}") for gpu in (0, 1)]
whole = torch.nn.Sequential(*(copy.deepcopy(stage).to("cuda:0") for stage in stages))
x = torch.randn(4096, 1024, device="cuda:0")  # 16 MiB go from stage to stage, and back
for _ in range(steps):
    hidden = stages[0](x).relu()
    stages[1](hidden.to("cuda:1", non_blocking=True)).square().mean().backward()
    whole[1](whole[0](x).relu()).square().mean().backward()
for stage, same in zip(stages, whole, strict=True):
    assert stage.weight.grad is not None
    assert same.weight.grad is not None
    torch.testing.assert_close(
        stage.weight.grad.to("cuda:0"), same.weight.grad, rtol=1e-3, atol=1e-5
    )
print("done", steps, flush=True)
sys.stdin.read()
