"""What a Python factory may be and may return."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from treadle.serve.worker.messages import Loaded

from .hosting import FACTORIES, FLOATS, RESULT, LocalHost, model

X = np.array([[1.0, 2.0]], np.float32)

# factory, what the configuration declares
FORMS = [
    ("worker_models:Doubles", {}),
    ("worker_models:without_context", {}),
    ("worker_models:a_function", {"inputs": FLOATS, "outputs": RESULT}),
    ("torch_models:declared", {}),
    ("torch_models:Declared", {}),
    ("torch_models:doubles", {"inputs": FLOATS, "outputs": RESULT}),
    ("torch_models:Doubles", {"inputs": FLOATS, "outputs": RESULT}),
]


@pytest.mark.parametrize(("factory", "declared"), FORMS)
def test_forms(host: LocalHost, factory: str, declared: dict[str, object]) -> None:
    assert host.load(model(factory, **declared)) == Loaded({"m": (FLOATS, RESULT)})
    assert host.run(x=X)["y"].tolist() == [[2.0, 4.0]]


@pytest.mark.parametrize(
    "factory",
    [
        "worker_models:WithContext",
        "worker_models:with_context",
        "worker_models:with_a_context_by_any_name",
        "worker_models:with_a_context_that_may_be_missing",
    ],
)
def test_a_factory_with_a_parameter_is_told_where_its_model_runs(
    host: LocalHost, factory: str
) -> None:
    setup = model(factory, threads=3, max_batch=1, parameters={"depth": 5})
    assert isinstance(host.load(setup), Loaded)
    assert host.run(x=X)["y"].tolist() == [
        *(b"m", b"cpu", b"3/1", str(FACTORIES).encode(), b"{'depth': 5}")
    ]


def test_a_factory_that_cannot_take_a_context_is_called_without(host: LocalHost) -> None:
    setup = model("worker_models:with_settings_of_its_own", inputs=FLOATS, outputs=RESULT)
    assert isinstance(host.load(setup), Loaded)
    assert host.run(x=X)["y"].tolist() == [[3.0, 6.0]]


def test_what_the_configuration_declares_goes_before_what_the_model_says(host: LocalHost) -> None:
    outputs = (("y", "FP32", (1, 2)),)
    assert host.load(model(outputs=outputs)) == Loaded({"m": (FLOATS, outputs)})


# setup, what the reason says
REFUSALS = [
    ("absent_module:Model", {}, ["ModuleNotFoundError", "absent_module"]),
    ("worker_models:Absent", {}, ["module 'worker_models' has no callable 'Absent'"]),
    ("worker_models:NOT_CALLABLE", {}, ["has no callable 'NOT_CALLABLE'"]),
    ("worker_models:raises", {}, ["RuntimeError: no weights today"]),
    ("worker_models:exits", {}, ["SystemExit: 3"]),
    ("worker_models:not_a_model", {}, ["returned Silent, not a callable"]),
    ("worker_models:a_function", {}, ["does not say what it takes and returns"]),
    ("worker_models:a_function", {"inputs": FLOATS}, ["does not say what it takes and returns"]),
    ("torch_models:doubles", {"outputs": RESULT}, ["does not say what it takes and returns"]),
    (
        "worker_models:Unloadable",
        {"parameters": {"datatype": "FLOAT", "shape": [1]}},
        ["'y' is declared as 'FLOAT'", "allowed: BOOL, UINT8"],
    ),
    (
        "worker_models:Unloadable",
        {"parameters": {"datatype": "FP32", "shape": [1, 2]}, "max_batch": 2},
        ["'y' of model 'm' has shape [1, 2]", "must be -1"],
    ),
    (
        "worker_models:Unloadable",
        {"parameters": {"datatype": "FP32", "shape": []}, "max_batch": 2},
        ["'y' of model 'm' has shape []", "must be -1"],
    ),
    (
        "worker_models:Doubles",
        {"inputs": (("x", "FP32", (4, 2)),), "max_batch": 2},
        ["'x' of model 'm' has shape [4, 2]", "must be -1"],
    ),
]


@pytest.mark.parametrize(("factory", "changes", "said"), REFUSALS)
def test_refusals(
    host: LocalHost, factory: str, changes: dict[str, object], said: list[str]
) -> None:
    reason = host.refusal(model(factory, **changes))
    assert [part for part in said if part not in reason] == []


def test_without_batches_a_first_dimension_may_be_fixed(host: LocalHost) -> None:
    parameters = {"datatype": "FP32", "shape": [1, 2]}
    answer = host.load(model("worker_models:Unloadable", parameters=parameters))
    assert isinstance(answer, Loaded)


def test_the_folder_of_the_configuration_is_where_modules_are_found(
    host: LocalHost, tmp_path: Path
) -> None:
    (tmp_path / "found_beside_the_configuration.py").write_text(
        "from treadle import TensorSpec\n"
        "class Model:\n"
        "    inputs = outputs = [TensorSpec('x', 'INT8', ())]\n"
        "    def __call__(self, inputs): return inputs\n"
    )
    setup = model("found_beside_the_configuration:Model", folder=str(tmp_path))
    for _ in range(2):
        assert isinstance(host.load(setup), Loaded)
    assert host.run(x=np.array(5, np.int8))["x"].tolist() == 5
    assert sys.path.count(str(tmp_path)) == 1
