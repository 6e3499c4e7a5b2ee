"""PyTorch modules as the worker runs them, on the CPU or on a GPU's own streams."""

from __future__ import annotations

import functools
import importlib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from treadle.devices.device import DeviceError
from treadle.devices.green import GreenContexts
from treadle.errors import ModelLoadError
from treadle.serve.tensors import DTYPES, Array
from treadle.serve.worker.graphs import CudaGraph, Graphs
from treadle.serve.worker.messages import ModelSetup
from treadle.turnstile import member
from treadle.types import Priority, TensorSpec

_log = logging.getLogger("treadle.worker")
_BFLOAT16 = DTYPES["BF16"]


class TorchModel:
    """A module that is called with its inputs in order, without gradients."""

    def __init__(
        self,
        module: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        setup: ModelSetup,
    ) -> None:
        torch: Any = importlib.import_module("torch")
        self._torch = torch
        torch.set_num_threads(setup.threads)
        self.inputs = inputs
        self.outputs = outputs
        self._device = torch.device(setup.device)
        self._dtype = getattr(torch, setup.dtype) if setup.dtype else None
        if hasattr(module, "eval") and not setup.exported:  # an exported one cannot be switched
            module = module.eval()
        module = module.to(self._device, self._dtype)
        self._module = torch.compile(module) if setup.compile else module
        self._streams = _Streams(torch, setup) if self._device.type == "cuda" else None
        self._graphs = self._new_graphs(setup) if setup.cuda_graph else None

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        """Run one batch, and wait for it."""
        return self.begin(inputs).arrays()

    def begin(self, inputs: dict[str, Array]) -> TorchBatch:
        """Have a batch copied in and run; on a GPU it goes on after this returns."""
        streams = self._streams
        if streams is None:
            results = self._run([self._to_device(inputs[spec.name]) for spec in self.inputs])
            return TorchBatch(self._torch, results, None)
        streams.begin()
        start = streams.mark()
        try:
            with self._torch.cuda.stream(streams.copies_in):
                tensors = [self._to_device(inputs[spec.name]) for spec in self.inputs]
            streams.compute.wait_stream(streams.copies_in)
            for tensor in tensors:
                tensor.record_stream(streams.compute)
            with self._torch.cuda.stream(streams.compute):
                graphed = self._graphs.run(tensors) if self._graphs is not None else None
                results = self._run(tensors) if graphed is None else graphed
        except BaseException:
            streams.end()
            raise
        return TorchBatch(self._torch, results, streams, start)

    def free_memory(self) -> None:
        """Give back what is kept for later use only."""
        if self._graphs is not None:
            self._graphs.clear()
        if self._device.type == "cuda":
            self._torch.cuda.empty_cache()

    def _new_graphs(self, setup: ModelSetup) -> Graphs | None:
        torch, streams = self._torch, self._streams
        if streams is None:
            raise ModelLoadError("cuda_graph is for models on a GPU")
        pool = torch.cuda.graph_pool_handle()
        return Graphs(
            lambda inputs: CudaGraph(torch, streams.compute, pool, self._run, inputs),
            setup.max_batch if setup.max_batch > 1 else None,
            setup.graph_memory_bytes,
        )

    def _run(self, tensors: Sequence[Any]) -> dict[str, Any]:
        if self._dtype is not None:
            tensors = [t.to(self._dtype) if t.is_floating_point() else t for t in tensors]
        with self._torch.inference_mode():
            result = self._module(*tensors)
        named = self._named(result)
        return {
            spec.name: self._as_declared(spec, named[spec.name])
            for spec in self.outputs
            if spec.name in named
        }

    def _named(self, result: Any) -> dict[str, Any]:
        if isinstance(result, Mapping):
            return {str(name): value for name, value in result.items()}
        values = [result] if isinstance(result, self._torch.Tensor) else list(result)
        if len(values) != len(self.outputs):
            raise ValueError(f"{len(values)} outputs where {len(self.outputs)} are declared")
        return {spec.name: value for spec, value in zip(self.outputs, values, strict=True)}

    def _as_declared(self, spec: TensorSpec, value: Any) -> Any:
        value = value.detach()  # a parameter asks for gradients even here
        if self._dtype is not None and value.is_floating_point():
            value = value.to(_torch_dtype(self._torch, spec.datatype))
        return value.contiguous()

    def _to_device(self, array: Array) -> Any:
        if array.dtype == _BFLOAT16:
            tensor = self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        else:
            tensor = self._torch.from_numpy(array)
        return tensor.to(self._device, non_blocking=True)


class TorchBatch:
    """A batch on its way: its outputs are known in shape, and computed when ``wait`` returns."""

    def __init__(
        self, torch: Any, results: dict[str, Any], streams: _Streams | None, start: Any = None
    ) -> None:
        self.device_seconds = 0.0
        """From its first copy to its last by the device's clock, if that is to be known."""
        self._torch = torch
        self._start = start
        self._results = results
        self._streams = streams
        self._end: Any = None

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and type of each output."""
        return {
            name: (tuple(value.shape), _numpy_dtype(self._torch, value.dtype))
            for name, value in self._results.items()
        }

    def copy_to(self, places: Mapping[str, Array]) -> None:
        """Have the outputs copied there; they are there when ``wait`` returns."""
        torch, streams = self._torch, self._streams
        if streams is None:
            for name, place in places.items():
                _as_tensor(torch, place).copy_(self._results[name])
            return
        streams.copies_out.wait_stream(streams.compute)
        with torch.cuda.stream(streams.copies_out):
            for name, place in places.items():
                self._results[name].record_stream(streams.copies_out)
                _as_tensor(torch, place).copy_(self._results[name], non_blocking=True)
            # Blocking: others need the CPU meanwhile.
            self._end = torch.cuda.Event(blocking=True, enable_timing=self._start is not None)
            self._end.record()

    def wait(self) -> None:
        """Wait until the outputs are where they were to be copied."""
        try:
            if self._end is not None:
                self._end.synchronize()
                if self._start is not None:
                    self.device_seconds = self._start.elapsed_time(self._end) / 1000
        finally:
            self.close()

    def close(self) -> None:
        """Say that nothing more comes of this batch."""
        if self._streams is not None:
            self._streams.end()
            self._streams = None
        self._results = {}  # who still holds the batch holds none of the device's memory

    def arrays(self) -> dict[str, Array]:
        """The outputs, copied to memory of their own."""
        places = {name: np.empty(shape, dtype) for name, (shape, dtype) in self.shapes.items()}
        self.copy_to(places)
        self.wait()
        return places


class _Streams:
    """One model's streams on a GPU: its copies overlap with its own and others' work."""

    def __init__(self, torch: Any, setup: ModelSetup) -> None:
        priority = Priority(setup.priority)
        level = _stream_level(torch, priority)
        self._torch, self._timed = torch, setup.timed
        self.copies_in = torch.cuda.Stream(setup.device, priority=level)
        self.copies_out = torch.cuda.Stream(setup.device, priority=level)
        self.compute = (
            torch.cuda.Stream(setup.device, priority=level)
            if setup.sm_share == 1
            else _stream_on_some_sms(torch, setup, level)
        )
        for stream in (self.compute, self.copies_in, self.copies_out):
            member.assign(stream.cuda_stream, priority)
        self._critical = priority is Priority.CRITICAL
        self._marks: list[Any] = []

    def begin(self) -> None:
        """Hold back less urgent work from before the copies on."""
        if self._critical:
            mark = member.critical()
            mark.__enter__()
            self._marks.append(mark)

    def mark(self) -> Any:
        """An event before the copies in, if batches are to be timed."""
        if not self._timed:
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self.copies_in)
        return event

    def end(self) -> None:
        if self._marks:
            self._marks.pop().__exit__(None, None, None)


@functools.cache
def _green_contexts(device: int) -> GreenContexts:
    """One for all models of this worker, whose SMs are to lie side by side."""
    return GreenContexts(device)


def _stream_on_some_sms(torch: Any, setup: ModelSetup, level: int) -> Any:
    """A stream for computing on ``sm_share`` of the SMs; nothing else may run in it."""
    device = torch.device(setup.device)
    index = torch.cuda.current_device() if device.index is None else device.index
    try:
        contexts = _green_contexts(index)
        handle, sms = contexts.stream(setup.sm_share, level)
    except DeviceError as error:
        raise ModelLoadError(f"sm_share: {error}") from None
    _log.info("%s: %d of %d SMs", setup.name, sms, contexts.sms)
    return torch.cuda.ExternalStream(handle, device=torch.device("cuda", index))


def _stream_level(torch: Any, priority: Priority) -> int:
    """A class as the device has it: greatest, middle, least. Positive numbers are none."""
    least, greatest = torch.cuda.Stream.priority_range()
    levels: dict[Priority, int] = {
        Priority.CRITICAL: greatest,
        Priority.NORMAL: math.floor((greatest + least) / 2),
        Priority.BACKGROUND: least,
    }
    return levels[priority]


def _as_tensor(torch: Any, place: Array) -> Any:
    if place.dtype == _BFLOAT16:
        return torch.from_numpy(place.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(place)


def _torch_dtype(torch: Any, datatype: str) -> Any:
    if datatype == "BF16":
        return torch.bfloat16
    return torch.from_numpy(np.zeros(0, DTYPES[datatype])).dtype


def _numpy_dtype(torch: Any, dtype: Any) -> np.dtype[Any]:
    if dtype == torch.bfloat16:
        return cast(np.dtype[Any], _BFLOAT16)
    return cast(np.dtype[Any], torch.zeros(0, dtype=dtype).numpy().dtype)


def load_torch_file(setup: ModelSetup, path: str) -> Any:
    """A module from a TorchScript or ``torch.export`` file.

    Raises:
        ModelLoadError: If the file is none; says why.
    """
    torch: Any = importlib.import_module("torch")
    try:
        if setup.torchscript:
            return torch.jit.load(path, map_location=setup.device)
        return torch.export.load(path).module()
    except Exception as error:
        raise ModelLoadError(f"{path} is not a model that can be run: {error}") from error
