"""What model tables may say together."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.errors import ConfigError
from treadle.serve.config import ModelConfig, TensorConfig, check_models
from treadle.serve.padding import PaddingConfig
from treadle.serve.tensors import DTYPES
from treadle.types import Objective, Priority, TensorSpec


def python_model(name: str = "a", **changes: Any) -> ModelConfig:
    return ModelConfig(name=name, **{"factory": "module:callable", **changes})


def onnx_model(name: str = "a", **changes: Any) -> ModelConfig:
    return ModelConfig(name=name, **{"onnx": "model.onnx", **changes})


def tensor(datatype: str = "FP32", shape: tuple[int, ...] = (-1,)) -> TensorConfig:
    return TensorConfig(name="x", datatype=datatype, shape=shape)


def padded_model(max_batch: int = 8, **changes: Any) -> ModelConfig:
    padding = PaddingConfig(lengths=(8, 16), inputs={"x": 1})
    return python_model(max_batch=max_batch, **{"padding": padding, **changes})


GOOD: list[tuple[ModelConfig, ...]] = [
    (),
    (python_model(),),
    (onnx_model(),),
    (python_model("a"), onnx_model("b")),
    (python_model(inputs=(tensor(),), outputs=(tensor("BYTES"),)),),
    (python_model("a", worker="w"), onnx_model("b", worker="w")),
    (python_model("a", worker="w", env={"A": "1"}), python_model("b", worker="w", env={"A": "1"})),
    (python_model("a", replicas=2), python_model("b", replicas=3)),
    (python_model(factory=None, torchscript="m.pt", inputs=(tensor(),), outputs=(tensor(),)),),
    (
        python_model("a", worker="w", device="cuda", priority="critical"),
        python_model("b", worker="w", device="cuda", dtype="float16"),
    ),
    (python_model(sm_share=0.5, device="cuda", worker="w"), python_model("b", sm_share=1.0)),
    (python_model(p99_seconds=0.1, use_whole_objective=True, when_late="refuse"),),
    (python_model(streaming=True, p99_seconds=0.1, stream_stall_seconds=1.0),),
    (padded_model(),),
    (padded_model(inputs=(tensor(shape=(-1, -1)),), outputs=(tensor(shape=(-1,)),)),),
]


@pytest.mark.parametrize("models", GOOD, ids=range(len(GOOD)))
def test_good(models: tuple[ModelConfig, ...]) -> None:
    check_models(models)


# models, what the error says
BAD: list[tuple[tuple[ModelConfig, ...], list[str]]] = [
    ((python_model(), python_model()), ["model[1] (a)", "name", "already taken"]),
    (
        (python_model(factory=None),),
        ["model[0] (a)", "exactly one of the keys onnx, factory, torchscript"],
    ),
    (
        (python_model(onnx="m.onnx"),),
        ["model[0] (a)", "exactly one of the keys onnx, factory, torchscript"],
    ),
    ((python_model(factory="module"),), ["model[0] (a)", "factory", '"module:callable"']),
    ((python_model(factory=":callable"),), ["factory", '"module:callable"']),
    ((python_model(factory="module:"),), ["factory", '"module:callable"']),
    ((onnx_model(inputs=(tensor(),)),), ["inputs, outputs", "only beside factory"]),
    ((onnx_model(outputs=(tensor(),)),), ["inputs, outputs", "only beside factory"]),
    ((python_model(inputs=(tensor("FLOAT"),)),), ["datatype", "'FLOAT'", ", ".join(DTYPES)]),
    ((python_model(outputs=(tensor("fp32"),)),), ["datatype", "'fp32'", ", ".join(DTYPES)]),
    (
        (python_model("a", worker="w"), python_model("b", worker="w", replicas=2)),
        ["model[1] (b)", "worker 'w'", "same device, env, replicas, priority", "'a' has others"],
    ),
    (
        (python_model("a", worker="w"), python_model("b", worker="w", env={"A": "1"})),
        ["model[1] (b)", "worker 'w'"],
    ),
    (
        (python_model("a", worker="w"), python_model("b", worker="w", priority="critical")),
        ["model[1] (b)", "worker 'w'"],
    ),
    (
        (python_model("a"), python_model("b", worker="a", replicas=2)),
        ["model[1] (b)", "worker 'a'"],
    ),
    ((python_model(factory=None, exported="m.pt2"),), ["inputs, outputs", "give both"]),
    ((onnx_model(dtype="float16"),), ["dtype", "only for PyTorch"]),
    ((onnx_model(compile=True),), ["compile", "only for PyTorch"]),
    ((python_model(cuda_graph=True),), ["cuda_graph", "on a GPU"]),
    ((python_model(sm_share=0.5),), ["sm_share", "CPU", "on a GPU"]),
    ((onnx_model(sm_share=0.5, device="cuda"),), ["sm_share", "ONNX Runtime"]),
    (
        (python_model(sm_share=0.5, device="cuda", cuda_graph=True),),
        ["sm_share", "without cuda_graph"],
    ),
    ((python_model(streaming=True, max_batch=2),), ["streaming", "max_batch 1"]),
    ((onnx_model(streaming=True),), ["streaming", "from a factory"]),
    ((python_model(graph_memory="much"),), ["graph_memory", "no amount of memory"]),
    ((python_model(when_late="refuse"),), ["when_late", "only beside p99_seconds"]),
    (
        (python_model("a", worker="w"), python_model("b", worker="w", device="cuda")),
        ["worker 'w'", "same device, env, replicas"],
    ),
    ((python_model("good"), python_model("bad", factory="x")), ["model[1] (bad)"]),
    ((padded_model(max_batch=1),), ["model[0] (a)", "padding", "only beside max_batch above 1"]),
    (
        (padded_model(padding=PaddingConfig(lengths=(16, 8), inputs={"x": 1})),),
        ["model[0] (a): padding.lengths: [16, 8]", "each greater than the last"],
    ),
    (
        (padded_model(inputs=(tensor(shape=(-1, 4)),)),),
        ["padding.inputs: x = 1", "its shape is [-1, 4]", "an axis that is -1"],
    ),
]


@pytest.mark.parametrize(("models", "said"), BAD, ids=range(len(BAD)))
def test_bad(models: tuple[ModelConfig, ...], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_models(models)
    assert [part for part in said if part not in str(caught.value)] == []


def test_a_table_in_the_words_of_the_rest_of_the_program() -> None:
    model = python_model(priority="critical", p99_seconds=0.05)
    assert model.priority_class is Priority.CRITICAL
    assert model.objective == Objective(p99_seconds=0.05)
    assert tensor("INT8").spec == TensorSpec("x", "INT8", (-1,))


def test_a_model_has_a_worker_of_its_own_unless_told_otherwise() -> None:
    assert python_model("a").worker_name == "a"
    assert python_model("a", worker="w").worker_name == "w"
