"""One of the served models, as another server runs it: eager, in the precision that treadle has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray

from treadle.bench.serving import served
from treadle.bench.serving.rivals.wire import DTYPES
from treadle.types import ModelContext, TensorSpec

Array = NDArray[Any]


class ModelOptions(Struct, frozen=True, kw_only=True):
    """Which model, and where it runs."""

    name: str
    factory: str
    device: str
    tiny: bool
    max_batch: int


class RunningModel:
    """A model on its device."""

    def __init__(self, options: ModelOptions) -> None:
        module: Any = _made(options)
        self._dtype = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
        self._device = torch.device(options.device)
        self._inputs = [spec.name for spec in module.inputs]
        (self._output,) = [spec.name for spec in module.outputs]
        self._module = module.eval().to(self._device, self._dtype)
        self._try_out(module.inputs, options.max_batch)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch, and wait for it."""
        with torch.inference_mode():
            tensors = [self._taken(inputs[name]) for name in self._inputs]
            result = self._module(*tensors).float().cpu().numpy()
        return {self._output: np.ascontiguousarray(result)}

    def _try_out(self, specs: Sequence[TensorSpec], max_batch: int) -> None:
        """Run every size of batch once: the first run of each loads and chooses kernels."""
        for rows in range(1, max_batch + 1):
            shapes = {spec.name: (rows, *spec.shape[1:]) for spec in specs}
            self({s.name: np.zeros(shapes[s.name], DTYPES[s.datatype]) for s in specs})

    def _taken(self, array: Array) -> Any:
        writable = array if array.flags.writeable else array.copy()  # PyTorch warns otherwise
        tensor = torch.from_numpy(writable).to(self._device)
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def metadata_of(options: ModelOptions) -> dict[str, Any]:
    """What the protocol tells about the model; makes nothing that takes memory."""
    with torch.device("meta"):
        module: Any = _made(options)
    return {
        "name": options.name,
        "versions": [],
        "platform": "pytorch",
        "inputs": [_told(spec) for spec in module.inputs],
        "outputs": [_told(spec) for spec in module.outputs],
    }


def _told(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _made(options: ModelOptions) -> Any:
    context = ModelContext(
        name=options.name,
        device=options.device,
        threads=torch.get_num_threads(),
        max_batch=options.max_batch,
        folder=Path(),
        parameters={"tiny": options.tiny},
    )
    return getattr(served, options.factory)(context)
