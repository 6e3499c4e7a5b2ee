"""The models: random weights, sizes as in the papers, or tiny ones that try the way.

They are factories for ``[[model]]`` tables; ``parameters`` says which scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from treadle.types import ModelContext, TensorSpec

Tensor = Any


def vision(context: ModelContext) -> nn.Module:
    """ResNet-50 (He et al. 2015, strides as in torchvision); an image is 602 kB."""
    tiny = context.parameters.get("tiny", False)
    return _ResNet((1, 1, 1, 1), 4, 10, 32) if tiny else _ResNet((3, 4, 6, 3), 64, 1000, 224)


def language(context: ModelContext) -> nn.Module:
    """An encoder of BERT-base's size (Devlin et al. 2018); a text is 128 tokens."""
    if context.parameters.get("tiny", False):
        return _Encoder(layers=1, width=16, heads=2, tokens=8, vocabulary=100)
    return _Encoder(layers=12, width=768, heads=12, tokens=128, vocabulary=30_522)


def ranker(context: ModelContext) -> nn.Module:
    """A recommender as DLRM (Naumov et al. 2019): 26 tables, 13 numbers, three small networks."""
    if context.parameters.get("tiny", False):
        return _Ranker(rows=100, width=4, hidden=8)
    return _Ranker(rows=200_000, width=64, hidden=512)


def echo(context: ModelContext) -> nn.Module:
    """Takes an image and says one number of it: all but the model."""
    return _Echo(32 if context.parameters.get("tiny", False) else 224)


class _Block(nn.Module):
    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv(inputs, inner, 1),
            nn.ReLU(inplace=True),
            *_conv(inner, inner, 3, stride),
            nn.ReLU(inplace=True),
            *_conv(inner, 4 * inner, 1),
        )
        same = stride == 1 and inputs == 4 * inner
        self.skip = nn.Identity() if same else nn.Sequential(*_conv(inputs, 4 * inner, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x) + self.skip(x))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs)


class _ResNet(nn.Module):
    def __init__(self, stages: tuple[int, ...], width: int, classes: int, side: int) -> None:
        super().__init__()
        self.inputs = [TensorSpec("image", "FP32", (-1, 3, side, side))]
        self.outputs = [TensorSpec("scores", "FP32", (-1, classes))]
        blocks: list[nn.Module] = []
        inputs = width
        for number, depth in enumerate(stages):
            inner = width << number
            for place in range(depth):
                blocks.append(_Block(inputs, inner, 2 if number and not place else 1))
                inputs = 4 * inner
        self.stem = nn.Sequential(*_conv(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, image: Tensor) -> Tensor:
        x = self.blocks(self.stem(image.contiguous(memory_format=torch.channels_last)))
        return self.head(x.mean((2, 3)))


class _Encoder(nn.Module):
    def __init__(
        self, *, layers: int, width: int, heads: int, tokens: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.inputs = [TensorSpec("tokens", "INT64", (-1, tokens))]
        self.outputs = [TensorSpec("embedding", "FP32", (-1, width))]
        self._vocabulary = vocabulary
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, batch_first=True, dropout=0.0, activation="gelu"
        )
        self.stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        # Whatever numbers a load generator makes up, they are tokens.
        return self.stack(self.embed(tokens % self._vocabulary)).mean(1)


class _Ranker(nn.Module):
    _TABLES, _NUMBERS = 26, 13

    def __init__(self, *, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.inputs = [
            TensorSpec("ids", "INT64", (-1, self._TABLES)),
            TensorSpec("numbers", "FP32", (-1, self._NUMBERS)),
        ]
        self.outputs = [TensorSpec("score", "FP32", (-1, 1))]
        self._rows = rows
        self.tables = nn.Embedding(rows * self._TABLES, width)
        self.below = nn.Sequential(
            nn.Linear(self._NUMBERS, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        pairs = (self._TABLES + 1) * self._TABLES // 2
        self.above = nn.Sequential(
            nn.Linear(pairs + width, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid()
        )
        self._first: Tensor
        self._second: Tensor
        self._offsets: Tensor
        first, second = torch.triu_indices(self._TABLES + 1, self._TABLES + 1, 1)
        self.register_buffer("_first", first)
        self.register_buffer("_second", second)
        self.register_buffer("_offsets", torch.arange(self._TABLES) * rows)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        dense = self.below(numbers)
        looked_up = self.tables(ids % self._rows + self._offsets)
        features = torch.cat([dense[:, None], looked_up], 1)
        products = features @ features.transpose(1, 2)
        return self.above(torch.cat([dense, products[:, self._first, self._second]], 1))


class _Echo(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.inputs = [TensorSpec("image", "FP32", (-1, 3, side, side))]
        self.outputs = [TensorSpec("first", "FP32", (-1, 1))]
        self.one = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        return image[:, 0, 0, :1] * self.one
