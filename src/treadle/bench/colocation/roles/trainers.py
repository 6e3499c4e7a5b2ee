"""The background work: training of a GPT-like transformer, written as most people write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle.bench.colocation.roles.lanes import CudaLane, Lane
from treadle.bench.colocation.workloads import Background, Scale

Step = Callable[[], Any]
"""Launches one training step."""

_WARM_UP_STEPS = 10
_LONG_SECONDS = 10e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    layers: int
    width: int
    heads: int
    tokens: int
    vocabulary: int


_SIZES = {
    Scale.FULL: _Sizes(layers=12, width=1024, heads=16, tokens=512, vocabulary=32000),
    Scale.TINY: _Sizes(layers=1, width=16, heads=2, tokens=8, vocabulary=32),
}


def build(workload: Background, scale: Scale, device: str, lane: Lane) -> Step:
    """Build a trainer, run some steps, and return what launches the next one.

    Args:
        workload: Batch and variant.
        scale: Which size of it.
        device: ``cuda`` or ``cpu``.
        lane: Where it runs; the caller is inside ``lane.use()``.
    """
    if workload.variant == "long":
        return _long_kernels(device, lane)
    captures = workload.variant == "graphs" and isinstance(lane, CudaLane)
    step = _eager(workload, _SIZES[scale], device, compiled=workload.variant == "compiled")
    for _ in range(_WARM_UP_STEPS if scale is Scale.FULL else 1):
        step()
    lane.drain()
    if captures:
        step = _captured(step, lane)
        for _ in range(_WARM_UP_STEPS):
            step()
        lane.drain()
    return step


def _long_kernels(device: str, lane: Lane) -> Step:
    """Kernels that spin for 10 ms; without a GPU, a pause of a tenth of that."""
    import torch

    if device != "cuda":
        return lambda: time.sleep(_LONG_SECONDS / 10)
    spin: Any = torch.cuda._sleep  # noqa: SLF001  # the only kernel of a given length there is

    def seconds(cycles: int) -> float:
        begun = lane.stamp()
        spin(cycles)
        ended = lane.stamp()
        lane.reached(ended)
        return lane.between(begun, ended)

    cycles = 10_000_000
    seconds(cycles)  # a cold one
    cycles = round(cycles * _LONG_SECONDS / seconds(cycles))
    return lambda: spin(cycles)


def _eager(workload: Background, sizes: _Sizes, device: str, *, compiled: bool) -> Step:
    import torch
    from torch import nn

    torch.manual_seed(0)
    batch = workload.batch if sizes is _SIZES[Scale.FULL] else 1
    layer = nn.TransformerEncoderLayer(
        sizes.width, sizes.heads, 4 * sizes.width, batch_first=True, dropout=0.0
    )
    stack = nn.TransformerEncoder(layer, sizes.layers, enable_nested_tensor=False)
    if compiled:
        # Layer by layer: they are alike, so one is compiled for all. (Their method compile does
        # nothing: dynamo skips frames that begin in torch.nn.)
        backend = "inductor" if device == "cuda" else "eager"
        for number, one in enumerate(stack.layers):
            stack.layers[number] = torch.compile(one, backend=backend)
    model = nn.Sequential(
        nn.Embedding(sizes.vocabulary, sizes.width),
        stack,
        nn.Linear(sizes.width, sizes.vocabulary),
    ).to(device)
    on_gpu = device == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=1e-4,
        fused=True,
        capturable=on_gpu and workload.variant == "graphs",
    )
    tokens = torch.randint(0, sizes.vocabulary, (batch, sizes.tokens), device=device)

    def step() -> Any:
        with torch.autocast(device, torch.bfloat16):
            scores = model(tokens).view(-1, sizes.vocabulary)
            loss: Any = nn.functional.cross_entropy(scores, tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def _captured(step: Step, lane: Lane) -> Step:
    """Record a whole step as one CUDA graph: the launch that cannot be interrupted."""
    import torch

    assert isinstance(lane, CudaLane)
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=lane.stream):
        loss = step()

    def replay(_loss: Any = loss) -> None:
        graph.replay()

    return replay
