"""Which batches run as which graphs: the graphs are played on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from treadle.serve.worker.graphs import Graphs

torch: Any = pytest.importorskip("torch")

MIB = 1 << 20


class Played:
    """Doubles what is in its inputs when it is replayed."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.inputs = inputs
        self.outputs = {"y": torch.zeros_like(inputs[0])}
        self.nbytes = MIB

    def replay(self) -> None:
        self.outputs["y"].copy_(2 * self.inputs[0])


class World:
    def __init__(self, most_rows: int | None = 12, memory_bytes: int = 100 * MIB) -> None:
        self.sizes: list[int] = []
        self.error: Exception | None = None
        self.graphs = Graphs(self.capture, most_rows, memory_bytes)

    def capture(self, inputs: Sequence[Any]) -> Played:
        if self.error is not None:
            raise self.error
        self.sizes.append(inputs[0].shape[0])
        return Played(inputs)

    def run(self, rows: int, width: int = 2) -> list[float] | None:
        """The first number of each row; None if it is not run as a graph."""
        x = torch.arange(1.0, rows + 1).reshape(rows, 1).expand(rows, width)
        found = self.graphs.run([x])
        return None if found is None else found["y"][:, 0].tolist()


def test_a_batch_runs_in_the_next_larger_graph_and_gets_its_own_rows() -> None:
    world = World()
    for rows in (1, 3, 4, 2, 9, 12, 3):
        assert world.run(rows) == [2.0 * n for n in range(1, rows + 1)]
    assert world.sizes == [1, 4, 2, 12]
    assert world.graphs.nbytes == 4 * MIB


def test_what_a_batch_put_out_stays_when_the_next_one_runs() -> None:
    graphs = World().graphs
    first = graphs.run([torch.ones(2, 2)])
    graphs.run([torch.full((2, 2), 9.0)])
    assert first is not None
    assert first["y"].tolist() == [[2.0, 2.0]] * 2


def test_another_shape_is_another_graph() -> None:
    world = World()
    assert world.run(4, width=2) == world.run(4, width=3)
    assert world.sizes == [4, 4]


def test_where_the_first_dimension_is_no_batch_shapes_are_as_they_are() -> None:
    world = World(most_rows=None)
    assert world.run(3) == [2.0, 4.0, 6.0]
    assert world.sizes == [3]


def test_beyond_the_budget_no_more_are_captured_and_the_others_stay() -> None:
    world = World(memory_bytes=2 * MIB)
    assert [world.run(1), world.run(2)] == [[2.0], [2.0, 4.0]]
    assert world.run(4) is None
    assert world.run(2) == [2.0, 4.0]
    assert world.sizes == [1, 2]


def test_a_model_that_cannot_be_captured_runs_otherwise() -> None:
    world = World()
    world.error = RuntimeError("operation not permitted when stream is capturing")
    assert world.run(2) is None
    world.error = None
    assert world.run(2) is None


def test_once_their_memory_was_needed_there_are_none() -> None:
    world = World()
    world.run(2)
    world.graphs.clear()
    assert world.graphs.nbytes == 0
    assert world.run(2) is None


def test_memory_that_runs_out_at_a_capture_is_told() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    world = World()
    world.error = OutOfMemoryError("CUDA out of memory")
    with pytest.raises(OutOfMemoryError):
        world.run(2)


def test_where_there_are_no_batches_each_input_and_output_has_a_shape_of_its_own() -> None:
    class Sums(Played):
        def __init__(self, inputs: Sequence[Any]) -> None:
            super().__init__(inputs)
            self.outputs = {"flat": torch.zeros(12), "sum": torch.zeros(())}

        def replay(self) -> None:
            self.outputs["flat"].copy_(self.inputs[0].reshape(-1))
            self.outputs["sum"].copy_(self.inputs[1].sum())

    graphs = Graphs(Sums, None, 100 * MIB)
    found = graphs.run([torch.arange(12.0).reshape(3, 4), torch.tensor([[1.0, 2.0]])])
    assert found is not None
    assert found["flat"].tolist() == list(range(12))
    assert found["sum"].item() == 3.0
    number = Graphs(Played, None, 100 * MIB).run([torch.tensor(4.0)])
    assert number is not None
    assert number["y"].item() == 8.0
