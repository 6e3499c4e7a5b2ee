"""A Triton kernel. It is a module of its own because Triton reads the source of its kernels."""

import importlib
from typing import Any

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

_BLOCK = 256


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _double(source, target, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    tl.store(target + place, 2 * tl.load(source + place, mask=inside), mask=inside)


def double(x: Any) -> Any:
    """Twice a tensor of one dimension on the GPU."""
    y = importlib.import_module("torch").empty_like(x)
    _double[(triton.cdiv(x.numel(), _BLOCK),)](x, y, x.numel(), block=_BLOCK)
    return y
