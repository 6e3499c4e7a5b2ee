"""What a configuration file may say of a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from treadle.errors import ConfigError, TreadleError
from treadle.serve.padding import PaddingConfig
from treadle.serve.tensors import DTYPES
from treadle.types import Objective, Priority, TensorSpec
from treadle.units import parse_bytes

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Delay = Annotated[float, Meta(ge=0, le=60)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
VariableName = Annotated[str, Meta(pattern=r"^[^=\x00]+$")]
VariableValue = Annotated[str, Meta(pattern=r"^[^\x00]*$")]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class TensorConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that a Python model takes or returns; -1 stands for any size."""

    name: Annotated[str, Meta(min_length=1)]
    datatype: str
    shape: tuple[Annotated[int, Meta(ge=-1)], ...]

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.datatype, self.shape)


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[model]]`` table. ``docs/configuration.md`` says what each key means."""

    name: Name
    version: Name = "1"
    onnx: str | None = None
    factory: str | None = None
    torchscript: str | None = None
    exported: str | None = None
    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
    parameters: dict[str, Any] = {}
    device: Annotated[str, Meta(pattern=r"\A(cpu|cuda(:[0-9]{1,3})?)\Z")] = "cpu"
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    compile: bool = False
    cuda_graph: bool = False
    graph_memory: str = "1GiB"
    warm_up: tuple[Annotated[int, Meta(ge=1)], ...] | None = None
    sm_share: Fraction = 1.0
    profile: Annotated[str, Meta(min_length=1)] | None = None
    share: Fraction = 1.0
    priority: Literal["critical", "normal", "background"] = "normal"
    p99_seconds: Seconds | None = None
    use_whole_objective: bool = False
    when_late: Literal["serve", "refuse"] = "serve"
    replicas: Annotated[int, Meta(ge=1, le=64)] = 1
    max_batch: Annotated[int, Meta(ge=1, le=4096)] = 1
    max_delay_seconds: Delay = 0.0
    padding: PaddingConfig | None = None
    queue_limit: Count = 256
    timeout_seconds: Seconds = 60.0
    run_limit_seconds: Seconds = 60.0
    load_limit_seconds: Seconds = 600.0
    streaming: bool = False
    stream_stall_seconds: Seconds = 30.0
    worker: Name | None = None
    env: dict[VariableName, VariableValue] = {}
    examples: tuple[str, ...] = ()
    load: bool = True

    @property
    def graph_memory_bytes(self) -> int:
        """What its CUDA graphs may keep.

        Raises:
            TreadleError: If ``graph_memory`` is no amount of memory.
        """
        return parse_bytes(self.graph_memory)

    @property
    def warm_up_rows(self) -> tuple[int, ...]:
        """The batch sizes to run before requests come: on a GPU one and the most, if not told."""
        if self.warm_up is not None:
            return self.warm_up
        return () if self.device == "cpu" else tuple(sorted({1, self.max_batch}))

    @property
    def device_name(self) -> str:
        """``cpu``, or ``cuda:`` and the number of the GPU."""
        return "cuda:0" if self.device == "cuda" else self.device

    @property
    def source(self) -> str:
        """What it is made of: a file, or a factory."""
        return self.onnx or self.factory or self.torchscript or self.exported or ""

    @property
    def priority_class(self) -> Priority:
        return Priority.parse(self.priority)

    @property
    def objective(self) -> Objective:
        return Objective(p99_seconds=self.p99_seconds)

    @property
    def worker_name(self) -> str:
        """Name of the worker that hosts the model: one of its own unless told otherwise."""
        return self.worker or self.name


def why_no_sm_share(model: ModelConfig) -> str:
    """Why a model cannot be given some of a GPU's SMs only; empty if it can."""
    if model.device == "cpu":
        return "it runs on the CPU, which has no SMs; allowed: for PyTorch models on a GPU"
    if model.onnx is not None:
        return "ONNX Runtime has streams of its own; allowed: for PyTorch models on a GPU"
    if model.cuda_graph:
        return "graphs keep the SMs that they were captured with; allowed: without cuda_graph"
    return ""


_SOURCES = ("onnx", "factory", "torchscript", "exported")


def check_models(models: tuple[ModelConfig, ...]) -> None:
    """Refuse what each table may say alone, but not together.

    Raises:
        ConfigError: Names the key and what is allowed.
    """
    seen: set[str] = set()
    by_worker: dict[str, ModelConfig] = {}
    for number, model in enumerate(models):
        where = f"model[{number}] ({model.name})"
        if model.name in seen:
            raise ConfigError(f"{where}: name: {model.name!r} is already taken; allowed: one each")
        seen.add(model.name)
        if len([key for key in _SOURCES if getattr(model, key) is not None]) != 1:
            raise ConfigError(f"{where}: allowed: exactly one of the keys {', '.join(_SOURCES)}")
        if model.factory is not None:
            module, _, attribute = model.factory.partition(":")
            if not (module and attribute):
                raise ConfigError(
                    f'{where}: factory: {model.factory!r}; allowed: "module:callable"'
                )
        elif model.onnx is None and not (model.inputs and model.outputs):
            raise ConfigError(
                f"{where}: inputs, outputs: a PyTorch file does not tell them; give both"
            )
        elif model.onnx is not None and (model.inputs or model.outputs):
            raise ConfigError(
                f"{where}: inputs, outputs: an ONNX file brings its own; "
                "allowed: only beside factory"
            )
        if model.onnx is not None and (model.dtype or model.compile):
            key = "dtype" if model.dtype else "compile"
            raise ConfigError(f"{where}: {key}: allowed: only for PyTorch models")
        if model.streaming and (model.factory is None or model.max_batch > 1):
            raise ConfigError(
                f"{where}: streaming: allowed: for models from a factory, with max_batch 1"
            )
        try:
            parse_bytes(model.graph_memory)
        except TreadleError as error:
            raise ConfigError(f"{where}: graph_memory: {error}") from None
        if model.cuda_graph and (model.onnx is not None or model.device == "cpu"):
            raise ConfigError(f"{where}: cuda_graph: allowed: for PyTorch models on a GPU")
        if model.sm_share < 1 and (why := why_no_sm_share(model)):
            raise ConfigError(f"{where}: sm_share: {why}")
        for tensor in (*model.inputs, *model.outputs):
            if tensor.datatype not in DTYPES:
                raise ConfigError(
                    f"{where}: datatype: {tensor.datatype!r}; allowed: {', '.join(DTYPES)}"
                )
        if model.p99_seconds is None:
            for key, unusual in (
                ("use_whole_objective", model.use_whole_objective),
                ("when_late", model.when_late == "refuse"),
            ):
                if unusual:
                    raise ConfigError(f"{where}: {key}: allowed: only beside p99_seconds")
        if model.padding is not None:
            _check_padding(where, model, model.padding)
        other = by_worker.setdefault(model.worker_name, model)
        # On a GPU each has streams of its own, with a class of their own.
        shared = ("env", "replicas", *(("priority",) if model.device == "cpu" else ()))
        if other.device_name != model.device_name or any(
            getattr(other, key) != getattr(model, key) for key in shared
        ):
            raise ConfigError(
                f"{where}: worker: models that share worker {model.worker_name!r} need the same "
                f"device, {', '.join(shared)}; {other.name!r} has others"
            )


def _check_padding(where: str, model: ModelConfig, padding: PaddingConfig) -> None:
    """What can be said before the model has loaded."""
    if model.max_batch == 1:
        raise ConfigError(f"{where}: padding: allowed: only beside max_batch above 1")
    try:
        padding.check([t.spec for t in model.inputs], [t.spec for t in model.outputs])
    except ValueError as error:
        raise ConfigError(f"{where}: padding.{error}") from None
