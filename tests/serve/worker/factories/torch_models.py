"""PyTorch modules in every form that a factory may return."""

from __future__ import annotations

from typing import Any

import torch

from treadle import ModelContext, TensorSpec


class Doubles(torch.nn.Module):
    """Without a constructor of its own, and without declared inputs."""

    def forward(self, x: Any) -> Any:
        return x * 2


class Declared(Doubles):
    """Says itself what it takes."""

    inputs = (TensorSpec("x", "FP32", (-1, 2)),)
    outputs = (TensorSpec("y", "FP32", (-1, 2)),)


class Returns(torch.nn.Module):
    """Returns its outputs in the form that ``parameters.form`` names."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        self.form = context.parameters["form"]
        self.weight = torch.nn.Parameter(torch.ones(1, 2))

    def forward(self, x: Any, y: Any) -> Any:
        plus, minus = x + y, x - y
        return {
            "dict": {"minus": minus, "plus": plus, "extra": x},
            "tuple": (plus, minus),
            "list": [plus, minus],
            "one": plus,
            "three": (plus, minus, x),
            "transposed": (plus.T.contiguous().T, minus),
            "parameter": (plus, self.weight),
            "number": 5,
        }[self.form]


class Modes(torch.nn.Module):
    """Answers whether it trains, and whether gradients are recorded."""

    def forward(self, x: Any) -> Any:
        return torch.tensor([self.training, torch.is_grad_enabled(), (x * 2).requires_grad])


def doubles() -> Doubles:
    return Doubles()


def declared() -> Declared:
    return Declared().train()


def returns(context: ModelContext) -> Returns:
    return Returns(context)


def modes() -> Modes:
    return Modes()
