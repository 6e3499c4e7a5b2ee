"""Looks at the GPU's memory, takes what it can get, gives it back, and goes on."""

from __future__ import annotations

import sys

import torch

PIECE = 64 << 20


def take(amount: int) -> torch.Tensor | None:
    try:
        return torch.empty(amount, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return None


free, total = torch.cuda.mem_get_info()
print("sees", total, free, flush=True)
print("more", "refused" if take(int(sys.argv[1])) is None else "granted", flush=True)
held = []
while (piece := take(PIECE)) is not None:
    held.append(piece)
print("held", len(held) * PIECE, flush=True)
del piece
held.clear()
torch.cuda.empty_cache()
x = torch.ones(1 << 20, device="cuda")
print("done", int(x.sum()), flush=True)
sys.stdin.read()
