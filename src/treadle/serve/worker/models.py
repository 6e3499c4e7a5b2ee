"""Models as the worker runs them: ONNX files and what Python factories return."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from treadle.errors import ModelLoadError
from treadle.serve.tensors import Array
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


class StagedBatch(Protocol):
    """A batch that runs on a device by itself."""

    @property
    def shapes(self) -> Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]: ...

    @property
    def device_seconds(self) -> float: ...

    def copy_to(self, places: Mapping[str, Array]) -> None: ...

    def wait(self) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class StagedModel(Protocol):
    """A model whose batches can be begun before the one before has ended."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]

    def begin(self, inputs: dict[str, Array], /) -> StagedBatch: ...


def load_model(setup: ModelSetup) -> RunnableModel:
    """Bring a model to life.

    Raises:
        ModelLoadError: If it cannot be; the text says why.
    """
    if setup.onnx is not None:
        return OnnxModel(resolve(setup.onnx, Path(setup.folder)), setup)
    if (file := setup.torchscript or setup.exported) is not None:
        return _load_torch_file(resolve(file, Path(setup.folder)), setup)
    return _call_factory(setup)


class OnnxModel:
    """An ONNX file, run by ONNX Runtime."""

    def __init__(self, path: Path, setup: ModelSetup) -> None:
        # Imported here: a worker that hosts only Python models has no use for it.
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = setup.threads
        options.inter_op_num_threads = 1
        # Threads that spin while idle would take the time that other models are due.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        if not path.is_file():
            raise ModelLoadError(f"no such file: {path}")
        provider = "CUDAExecutionProvider" if setup.on_gpu else "CPUExecutionProvider"
        if provider not in (offered := onnxruntime.get_available_providers()):
            raise ModelLoadError(
                f"this ONNX Runtime cannot run models on a GPU (it offers {', '.join(offered)}): "
                "install onnxruntime-gpu in the place of onnxruntime"
            )
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=[provider])
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
        if setup.streaming:
            raise ModelLoadError(
                f"{setup.factory} returned a PyTorch module, which gives one answer: with "
                "streaming, return a callable that yields"
            )
        return _torch_model(model, inputs, outputs, setup)
    if setup.dtype or setup.compile or setup.cuda_graph or setup.sm_share < 1:
        raise ModelLoadError(
            f"{setup.factory} returned {type(model).__name__}; dtype, compile, cuda_graph and "
            "sm_share are for PyTorch modules"
        )
    if not callable(model):
        raise ModelLoadError(f"{setup.factory} returned {type(model).__name__}, not a callable")
    return _Declared(model, inputs, outputs)


def _load_torch_file(path: Path, setup: ModelSetup) -> RunnableModel:
    inputs, outputs = ([TensorSpec(*spec) for spec in s] for s in (setup.inputs, setup.outputs))
    if not path.is_file():
        raise ModelLoadError(f"no such file: {path}")
    try:
        from treadle.serve.worker.torch_model import load_torch_file
    except ImportError as error:
        raise ModelLoadError(f"{path} needs PyTorch: {error}") from None
    return _torch_model(load_torch_file(setup, str(path)), inputs, outputs, setup)


def _torch_model(
    module: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], setup: ModelSetup
) -> RunnableModel:
    # Imported here: torch takes seconds, and most models have no use for it.
    from treadle.serve.worker.torch_model import TorchModel

    return TorchModel(module, inputs, outputs, setup)


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


def resolve(location: str, folder: Path) -> Path:
    """The file that ``onnx = …`` names: beside the configuration, or ``package:NAME/path``.

    Raises:
        ModelLoadError: If there is no such package.
    """
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
