"""Models as the worker runs them: ONNX files and what Python factories return."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from treadle.errors import ModelLoadError
from treadle.serve.tensors import DTYPES, Array
from treadle.serve.worker.messages import ModelSetup
from treadle.types import ModelContext, TensorSpec

_PACKAGE_PREFIX = "package:"


class RunnableModel(Protocol):
    """What a factory returns, unless it returns a PyTorch module."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...

    @property
    def outputs(self) -> Sequence[TensorSpec]: ...

    def __call__(self, inputs: dict[str, Array], /) -> Mapping[str, Array]: ...


def load_model(setup: ModelSetup) -> RunnableModel:
    """Bring a model to life.

    Raises:
        ModelLoadError: If it cannot be; the text says why.
    """
    if setup.onnx is not None:
        return OnnxModel(_resolve(setup.onnx, Path(setup.folder)), setup.threads)
    return _call_factory(setup)


class OnnxModel:
    """An ONNX file, run by ONNX Runtime on the CPU."""

    def __init__(self, path: Path, threads: int) -> None:
        # Imported here: a worker that hosts only Python models has no use for it.
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that spin while idle would take the time that other models are due.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        if not path.is_file():
            raise ModelLoadError(f"no such file: {path}")
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ModelLoadError(f"{path} is not a model that can be run: {error}") from error
        self.inputs = [_onnx_spec(node) for node in self._session.get_inputs()]
        self.outputs = [_onnx_spec(node) for node in self._session.get_outputs()]
        self._output_names = [spec.name for spec in self.outputs]
        self._text_inputs = [spec.name for spec in self.inputs if spec.datatype == "BYTES"]

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        for name in self._text_inputs:
            inputs[name] = np.array(
                [item.decode() for item in inputs[name].ravel().tolist()], np.object_
            ).reshape(inputs[name].shape)
        return dict(
            zip(self._output_names, self._session.run(self._output_names, inputs), strict=True)
        )


class TorchModel:
    """A PyTorch module: called with its inputs in order, without gradients."""

    def __init__(
        self, module: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], threads: int
    ) -> None:
        self._torch: Any = sys.modules["torch"]  # the module's own import brought it
        self._torch.set_num_threads(threads)
        self._module = module.eval()
        self.inputs = inputs
        self.outputs = outputs

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        torch = self._torch
        with torch.inference_mode():
            result = self._module(*(self._to_torch(inputs[s.name]) for s in self.inputs))
        if isinstance(result, Mapping):
            return {str(name): self._to_numpy(value) for name, value in result.items()}
        values = [result] if isinstance(result, torch.Tensor) else list(result)
        if len(values) != len(self.outputs):
            raise ValueError(f"{len(values)} outputs where {len(self.outputs)} are declared")
        return {s.name: self._to_numpy(v) for s, v in zip(self.outputs, values, strict=True)}

    def _to_torch(self, array: Array) -> Any:
        if array.dtype == DTYPES["BF16"]:
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    def _to_numpy(self, value: Any) -> Array:
        value = value.detach()  # a parameter asks for gradients even here
        if value.dtype == self._torch.bfloat16:
            return cast(Array, value.view(self._torch.int16).numpy().view(DTYPES["BF16"]))
        return cast(Array, value.numpy())


def _call_factory(setup: ModelSetup) -> RunnableModel:
    assert setup.factory is not None
    module_name, _, attribute = setup.factory.partition(":")
    if setup.folder not in sys.path:
        sys.path.insert(0, setup.folder)
    module = importlib.import_module(module_name)
    factory: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(factory):
        raise ModelLoadError(f"module {module_name!r} has no callable {attribute!r}")
    context = ModelContext(
        name=setup.name,
        device=setup.device,
        threads=setup.threads,
        max_batch=setup.max_batch,
        folder=Path(setup.folder),
        parameters=setup.parameters,
    )
    model = factory(context) if _takes_context(factory) else factory()
    inputs = [TensorSpec(*spec) for spec in setup.inputs] or getattr(model, "inputs", None)
    outputs = [TensorSpec(*spec) for spec in setup.outputs] or getattr(model, "outputs", None)
    if not (inputs and outputs):
        raise ModelLoadError(
            f"{setup.factory} does not say what it takes and returns: give it the attributes "
            "inputs and outputs (lists of treadle.TensorSpec), or write inputs and outputs in "
            "the configuration"
        )
    if _is_torch_module(model):
        return TorchModel(model, inputs, outputs, setup.threads)
    if not callable(model):
        raise ModelLoadError(f"{setup.factory} returned {type(model).__name__}, not a callable")
    return _Declared(model, inputs, outputs)


def _takes_context(factory: Callable[..., Any]) -> bool:
    """Whether a factory wants to be told where its model runs.

    Its first parameter must be given, or is plainly meant for it. ``*args``, as of a class
    without a constructor of its own, is not.
    """
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return False
        meant = parameter.name == "context" or "ModelContext" in str(parameter.annotation)
        return meant or parameter.default is parameter.empty
    return False


class _Declared:
    """A callable with the inputs and outputs that were declared for it."""

    def __init__(
        self,
        model: Callable[[dict[str, Array]], Mapping[str, Array]],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        self._model = model
        self.inputs = inputs
        self.outputs = outputs

    def __call__(self, inputs: dict[str, Array]) -> Mapping[str, Array]:
        return self._model(inputs)


def _is_torch_module(model: object) -> bool:
    """Whether this is a ``torch.nn.Module``, found out without importing torch."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module"
        for base in type(model).__mro__
    )


def _resolve(location: str, folder: Path) -> Path:
    """The file that ``onnx = …`` names: beside the configuration, or ``package:NAME/path``."""
    if not location.startswith(_PACKAGE_PREFIX):
        return folder / location
    package, _, inner = location.removeprefix(_PACKAGE_PREFIX).partition("/")
    try:
        found = importlib.util.find_spec(package)
    except (ModuleNotFoundError, ValueError):  # of a package inside it, or of no name at all
        found = None
    if found is None or not found.submodule_search_locations:
        raise ModelLoadError(f"package {package!r} is not installed, so {location} cannot be read")
    return Path(found.submodule_search_locations[0]) / inner


_ONNX_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


def _onnx_spec(node: Any) -> TensorSpec:
    datatype = _ONNX_DATATYPES.get(node.type)
    if datatype is None:
        raise ModelLoadError(
            f"{node.name!r} is of type {node.type}; allowed: {', '.join(_ONNX_DATATYPES)}"
        )
    # Symbolic and missing dimensions accept any size.
    shape = tuple(d if isinstance(d, int) and d >= 0 else -1 for d in node.shape)
    return TensorSpec(node.name, datatype, shape)
