"""The critical models: random weights, built and run the way a small server would.

Plain functions over tensors, no module classes: what is measured is launches and kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle.bench.colocation.roles.lanes import CudaLane, Lane
from treadle.bench.colocation.workloads import Scale

Tensor = Any
Start = Callable[[], None]
"""Puts all the work of one request on the lane, its copy from the host first."""

_CAPTURE_WARM_UPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A transformer's dimensions."""

    layers: int
    width: int
    heads: int
    batch: int
    tokens: int
    vocabulary: int = 0
    generated: int = 0


_ENCODER = {
    Scale.FULL: Sizes(layers=24, width=1024, heads=16, batch=8, tokens=128),
    Scale.TINY: Sizes(layers=1, width=16, heads=2, batch=1, tokens=4),
}
_DECODER = {
    Scale.FULL: Sizes(
        layers=6, width=768, heads=12, batch=1, tokens=32, vocabulary=32000, generated=8
    ),
    Scale.TINY: Sizes(layers=1, width=16, heads=2, batch=1, tokens=4, vocabulary=32, generated=2),
}


def build(model: str, scale: Scale, device: str, lane: Lane) -> Start:
    """Build a model on a device and return what runs one request of it.

    Args:
        model: ``resnet``, ``encoder``, ``decoder`` or ``probe``.
        scale: Which size of it.
        device: ``cuda`` or ``cpu``.
        lane: Where its requests run; the caller is inside ``lane.use()``.
    """
    if model == "decoder":
        return _decoder(_DECODER[scale], device)
    if model == "probe":
        return _probe(device)
    forward, given = _resnet(scale, device) if model == "resnet" else _encoder(scale, device)
    held = given.to(device, copy=True)
    if isinstance(lane, CudaLane):
        replay = _captured(lambda: forward(held), lane)
        pinned = given.pin_memory()

        def start() -> None:
            held.copy_(pinned, non_blocking=True)
            replay()

        return start

    def start_now() -> None:
        held.copy_(given)
        forward(held)

    return start_now


def _probe(device: str) -> Start:
    """The smallest thing that a device can be asked."""
    import torch

    x = torch.zeros(32, device=device)

    def start() -> None:
        x.add_(1)

    return start


def _captured(forward: Callable[[], Tensor], lane: CudaLane) -> Callable[[], None]:
    """Record a forward pass as one CUDA graph."""
    import torch

    for _ in range(_CAPTURE_WARM_UPS):
        forward()
    lane.drain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=lane.stream):
        answer = forward()

    def replay(graph: Any = graph, _answer: Tensor = answer) -> None:
        graph.replay()

    return replay


def _resnet(scale: Scale, device: str) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """ResNet-50 v1.5 (He et al. 2015, strides as in torchvision), bf16, channels last."""
    import torch
    from torch.nn import functional as f

    stages, width, side, classes = (3, 4, 6, 3), 64, 224, 1000
    if scale is Scale.TINY:
        stages, width, side, classes = (1, 1, 1, 1), 4, 32, 10

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Callable[..., Tensor]:
        weight = torch.randn(outputs, inputs, kernel, kernel) * (2 / (inputs * kernel**2)) ** 0.5
        weight = weight.to(device, torch.bfloat16, memory_format=torch.channels_last)
        zeros, ones = (make(outputs, device=device) for make in (torch.zeros, torch.ones))

        def apply(x: Tensor) -> Tensor:
            x = f.conv2d(x, weight, stride=stride, padding=kernel // 2)
            return f.batch_norm(x, zeros, ones, ones, zeros)

        return apply

    def block(inputs: int, inner: int, stride: int) -> Callable[[Tensor], Tensor]:
        reduce, middle = conv(inputs, inner, 1), conv(inner, inner, 3, stride)
        expand = conv(inner, 4 * inner, 1)
        changes = stride != 1 or inputs != 4 * inner
        skip = conv(inputs, 4 * inner, 1, stride) if changes else None

        def apply(x: Tensor) -> Tensor:
            y = expand(f.relu_(middle(f.relu_(reduce(x)))))
            return f.relu_(y.add_(x if skip is None else skip(x)))

        return apply

    stem = conv(3, width, 7, 2)
    blocks, inputs = [], width
    for number, depth in enumerate(stages):
        inner = width << number
        for place in range(depth):
            blocks.append(block(inputs, inner, 2 if number and not place else 1))
            inputs = 4 * inner
    head = torch.randn(classes, inputs).to(device, torch.bfloat16) * 0.01

    def forward(x: Tensor) -> Tensor:
        x = f.max_pool2d(f.relu_(stem(x)), 3, 2, 1)
        for apply in blocks:
            x = apply(x)
        return f.linear(x.mean((2, 3)), head)

    given = torch.randn(4, 3, side, side).to(torch.bfloat16, memory_format=torch.channels_last)
    return forward, given


def _encoder(scale: Scale, device: str) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """An encoder of BERT-large's size (Devlin et al. 2018), bf16, embeddings left out."""
    import torch

    sizes = _ENCODER[scale]
    layer = torch.nn.TransformerEncoderLayer(
        sizes.width,
        sizes.heads,
        4 * sizes.width,
        batch_first=True,
        dropout=0.0,
        activation="gelu",
    )
    stack = torch.nn.TransformerEncoder(layer, sizes.layers, enable_nested_tensor=False)
    stack = stack.eval().to(device, torch.bfloat16)
    return stack, torch.randn(sizes.batch, sizes.tokens, sizes.width, dtype=torch.bfloat16)


def _decoder(sizes: Sizes, device: str) -> Start:
    """A GPT-2-sized decoder, bf16, eager, greedy, its keys and values kept between tokens.

    The host reads every token, as a server does that streams: launches with gaps between.
    """
    import torch
    from torch.nn import functional as f

    width, heads = sizes.width, sizes.heads
    longest = sizes.tokens + sizes.generated

    def weight(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns) * columns**-0.5).to(device, torch.bfloat16)

    shapes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
    layers = [[weight(*shape) for shape in shapes] for _ in range(sizes.layers)]
    embedding = weight(sizes.vocabulary, width)
    kept = torch.zeros(
        sizes.layers, 2, 1, heads, longest, width // heads, device=device, dtype=torch.bfloat16
    )
    prompt = torch.randint(0, sizes.vocabulary, (1, sizes.tokens))
    prompt = prompt.pin_memory() if device == "cuda" else prompt

    def run(tokens: Tensor, start: int) -> Tensor:
        """Tokens of shape [1, n] at positions from ``start`` on; the next one, [1, 1]."""
        end = start + tokens.shape[1]
        x = f.embedding(tokens, embedding)
        for number, (qkv, out, up, down) in enumerate(layers):
            split = f.linear(f.layer_norm(x, (width,)), qkv).view(1, end - start, 3, heads, -1)
            query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
            keys, values = kept[number]
            keys[:, :, start:end] = key
            values[:, :, start:end] = value
            mixed = f.scaled_dot_product_attention(
                query, keys[:, :, :end], values[:, :, :end], is_causal=start == 0
            )
            x = x + f.linear(mixed.transpose(1, 2).reshape(1, end - start, width), out)
            x = x + f.linear(f.gelu(f.linear(f.layer_norm(x, (width,)), up)), down)
        return f.linear(f.layer_norm(x[:, -1:], (width,)), embedding).argmax(-1)

    def start() -> None:
        token = run(prompt.to(device, non_blocking=True), 0)
        for position in range(sizes.tokens, longest - 1):
            token.item()
            token = run(token, position)

    return start
