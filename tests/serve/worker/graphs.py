"""Tiny ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Dimensions = Sequence[int | str | None]

FLOAT, STRING, INT64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64


def save(
    file: Path,
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, int, Dimensions]],
    outputs: Sequence[tuple[str, int, Dimensions]],
    constants: Sequence[Any] = (),
) -> Path:
    """Write a graph that ONNX Runtime can run."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(constants),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)
    return file


def identity(file: Path, datatype: int = FLOAT, shape: Dimensions = ("batch", 2)) -> Path:
    """A file that returns its input ``x`` as ``y``."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    return save(file, nodes, [("x", datatype, shape)], [("y", datatype, shape)])


def sum_and_difference(file: Path) -> Path:
    """Two inputs, two outputs, of two types."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Sub", ["a", "b"], ["d"]),
        helper.make_node("Cast", ["d"], ["difference"], to=INT64),
    ]
    shape = ("n",)
    return save(
        file,
        nodes,
        [("a", FLOAT, shape), ("b", FLOAT, shape)],
        [("sum", FLOAT, shape), ("difference", INT64, shape)],
    )


def without_inputs(file: Path) -> Path:
    """A file that always answers the same."""
    constant = helper.make_tensor("c", FLOAT, (2,), [1.0, 2.0])
    nodes = [helper.make_node("Identity", ["c"], ["y"])]
    return save(file, nodes, [], [("y", FLOAT, (2,))], [constant])


def with_a_sequence(file: Path) -> Path:
    """A file whose output is no tensor."""
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, (1,))],
        [helper.make_tensor_sequence_value_info("y", FLOAT, None)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file
    )
    return file
