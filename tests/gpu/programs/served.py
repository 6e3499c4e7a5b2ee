"""Models that a node serves in tests."""

from __future__ import annotations

from typing import Any

import torch


class Doubling(torch.nn.Module):
    """Doubles, and multiplies matrices of that size beside it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))
        self.weight = torch.nn.Parameter(torch.randn(size, size) if size else torch.zeros(0, 0))

    def forward(self, x: Any) -> Any:
        if len(self.weight):
            torch.mm(self.weight, self.weight)
        return x * self.scale


def doubling(context: Any) -> torch.nn.Module:
    return Doubling(context.parameters.get("size", 0))


class Greedy(Doubling):
    """Needs so much memory for each row that no more than eight fit."""

    def forward(self, x: Any) -> Any:
        total = torch.cuda.get_device_properties(x.device).total_memory
        torch.empty(int(len(x) * total / 9), dtype=torch.uint8, device=x.device)
        return x * self.scale


def greedy(context: Any) -> torch.nn.Module:
    return Greedy(0)


class Spoiling(Doubling):
    """Reads beyond an end where its input is negative."""

    def forward(self, x: Any) -> Any:
        places = torch.where(x[:, 0] < 0, 1 << 40, 0)
        return x * self.scale[places][:, None]


def spoiling(context: Any) -> torch.nn.Module:
    return Spoiling(0)
