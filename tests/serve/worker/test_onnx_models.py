"""ONNX files as models."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from treadle.serve.tensors import DTYPES
from treadle.serve.worker.messages import Loaded, ModelSetup

from . import graphs
from .hosting import LocalHost, model

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def onnx_model(file: Path, **changes: object) -> ModelSetup:
    return model(None, onnx=file.name, folder=str(file.parent), **changes)


def test_a_free_first_dimension_is_a_batch(host: LocalHost, tmp_path: Path) -> None:
    setup = onnx_model(graphs.identity(tmp_path / "m.onnx"), max_batch=8)
    specs = ((("x", "FP32", (-1, 2)),), (("y", "FP32", (-1, 2)),))
    assert host.load(setup) == Loaded({"m": specs})
    for rows in (1, 2):
        assert host.run(rows=rows, x=X[:rows])["y"].tolist() == X[:rows].tolist()


@pytest.mark.parametrize(
    ("shape", "declared"),
    [((), ()), ((3,), (3,)), (("a", "b"), (-1, -1)), ((None, 4), (-1, 4)), ((0,), (0,))],
)
def test_named_and_missing_dimensions_take_any_size(
    host: LocalHost, tmp_path: Path, shape: tuple[int | str | None, ...], declared: tuple[int, ...]
) -> None:
    answer = host.load(onnx_model(graphs.identity(tmp_path / "m.onnx", shape=shape)))
    assert isinstance(answer, Loaded)
    assert answer.signatures["m"][0] == (("x", "FP32", declared),)


def test_several_inputs_and_outputs_keep_their_names(host: LocalHost, tmp_path: Path) -> None:
    answer = host.load(onnx_model(graphs.sum_and_difference(tmp_path / "m.onnx")))
    assert isinstance(answer, Loaded)
    inputs, outputs = answer.signatures["m"]
    assert inputs == (("a", "FP32", (-1,)), ("b", "FP32", (-1,)))
    assert outputs == (("sum", "FP32", (-1,)), ("difference", "INT64", (-1,)))
    results = host.run(b=np.array([1, 2], np.float32), a=np.array([5, 7], np.float32))
    assert results["sum"].tolist() == [6, 9]
    assert results["difference"].tolist() == [4, 5]


ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
}


@pytest.mark.parametrize("datatype", list(ONNX_TYPES))
def test_datatypes(host: LocalHost, tmp_path: Path, datatype: str) -> None:
    file = graphs.identity(tmp_path / "m.onnx", ONNX_TYPES[datatype])
    answer = host.load(onnx_model(file))
    assert isinstance(answer, Loaded)
    assert answer.signatures["m"][0] == (("x", datatype, (-1, 2)),)
    x = np.array([[1, 0]], DTYPES[datatype])
    y = host.run(x=x)["y"]
    assert (y.dtype, y.tolist()) == (x.dtype, x.tolist())


def test_text(host: LocalHost, tmp_path: Path) -> None:
    file = graphs.identity(tmp_path / "m.onnx", graphs.STRING)
    answer = host.load(onnx_model(file, max_batch=4))
    assert isinstance(answer, Loaded)
    assert answer.signatures["m"][0] == (("x", "BYTES", (-1, 2)),)
    x = np.array([["größer".encode(), b""], [b"a", b"b" * 1000]], object)
    assert host.run(rows=2, x=x)["y"].tolist() == x.tolist()


def test_text_that_is_none_fails_the_batch_and_no_more(host: LocalHost, tmp_path: Path) -> None:
    file = graphs.identity(tmp_path / "m.onnx", graphs.STRING)
    host.load(onnx_model(file))
    assert "UnicodeDecodeError" in host.failure(x=np.array([[b"\xff", b""]], object))
    assert host.run(x=np.array([[b"a", b"b"]], object))["y"].tolist() == [[b"a", b"b"]]


@pytest.mark.parametrize("datatype", [TensorProto.BFLOAT16, TensorProto.COMPLEX64])
def test_a_type_that_the_protocol_or_the_runtime_lacks_is_refused(
    host: LocalHost, tmp_path: Path, datatype: int
) -> None:
    reason = host.refusal(onnx_model(graphs.identity(tmp_path / "m.onnx", datatype)))
    assert "is of type tensor(" in reason or "is not a model that can be run" in reason


def test_an_output_that_is_no_tensor_is_refused(host: LocalHost, tmp_path: Path) -> None:
    reason = host.refusal(onnx_model(graphs.with_a_sequence(tmp_path / "m.onnx")))
    assert "'y' is of type seq(tensor(float)); allowed: tensor(bool)" in reason


def test_a_file_without_inputs_is_refused(host: LocalHost, tmp_path: Path) -> None:
    """Nothing could be asked of it, and no batch would know its rows."""
    file = graphs.without_inputs(tmp_path / "m.onnx")
    assert "input" in host.refusal(onnx_model(file))


def test_a_fixed_first_dimension_is_no_batch(host: LocalHost, tmp_path: Path) -> None:
    file = graphs.identity(tmp_path / "m.onnx", shape=(4, 2))
    reason = host.refusal(onnx_model(file, max_batch=4))
    assert "'x' of model 'm' has shape [4, 2]" in reason


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_refused(host: LocalHost, tmp_path: Path, kept: float) -> None:
    file = graphs.sum_and_difference(tmp_path / "m.onnx")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    reason = host.refusal(onnx_model(file))
    assert f"{file} is not a model that can be run" in reason


@pytest.mark.parametrize("name", ["absent.onnx", "", "folder"])
def test_what_is_no_file_is_refused(host: LocalHost, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    reason = host.refusal(model(None, onnx=name, folder=str(tmp_path)))
    assert f"no such file: {tmp_path / name}" in reason


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a model inside, whose import would fail."""
    folder = tmp_path / "site" / "package_with_model" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    graphs.identity(folder / "m.onnx")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return folder


def test_a_file_inside_an_installed_package_is_found_without_importing_it(
    host: LocalHost, package: Path
) -> None:
    setup = model(None, onnx="package:package_with_model/data/m.onnx", folder="/nowhere")
    assert isinstance(host.load(setup), Loaded)
    assert host.run(x=X)["y"].tolist() == X.tolist()


# location, what the reason says
LOCATIONS = [
    ("package:package_with_model/absent.onnx", "no such file: {package}/absent.onnx"),
    ("package:not_installed_anywhere/m.onnx", "package 'not_installed_anywhere' is not installed"),
    ("package:zlib/m.onnx", "package 'zlib' is not installed"),
    (
        "package:not_installed_anywhere.inner/m.onnx",
        "'not_installed_anywhere.inner' is not installed",
    ),
    ("package:", "package '' is not installed"),
]


@pytest.mark.parametrize(("location", "said"), LOCATIONS)
def test_a_package_that_lacks_the_file_is_refused(
    host: LocalHost, package: Path, location: str, said: str
) -> None:
    reason = host.refusal(model(None, onnx=location, folder="/nowhere"))
    assert said.format(package=package.parent) in reason
