"""CUDA graphs of a model, one for each batch size that comes up: a launch instead of hundreds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

_log = logging.getLogger("treadle.worker")


class Captured(Protocol):
    """A graph, and the tensors that it reads and writes."""

    inputs: Sequence[Any]
    outputs: dict[str, Any]
    nbytes: int
    """Device memory that it keeps."""

    def replay(self) -> None: ...


Capture = Callable[[Sequence[Any]], Captured]
"""Makes a graph whose inputs are these tensors."""


class Graphs:
    """The graphs of one model, captured when a size is first asked for, within a budget of memory.

    Sizes are powers of two and the largest batch; a batch in between runs in the next larger
    graph, with rows behind its own that nobody looks at.
    """

    def __init__(self, capture: Capture, most_rows: int | None, memory_bytes: int) -> None:
        """Begin without any.

        Args:
            capture: Makes a graph.
            most_rows: The largest batch; None if the first dimension is not the batch.
            memory_bytes: What all graphs may keep. The last one may exceed it.
        """
        self._capture = capture
        self._most_rows = most_rows
        self._memory_bytes = memory_bytes
        self._graphs: dict[tuple[object, ...], Captured] = {}
        self._given_up = False

    @property
    def nbytes(self) -> int:
        """Device memory that the graphs keep."""
        return sum(graph.nbytes for graph in self._graphs.values())

    def run(self, tensors: Sequence[Any]) -> dict[str, Any] | None:
        """Run a batch as a graph; None if there is none for it, and it has to run otherwise.

        Args:
            tensors: The inputs; if there are batches, all with the rows as their first dimension.
        """
        if self._most_rows is None:
            return self._run_as_it_is(tensors)
        rows = tensors[0].shape[0]
        size = self.size_for(rows)
        graph = self._graph_for(tensors, [(size, *t.shape[1:]) for t in tensors])
        if graph is None:
            return None
        for given, place in zip(tensors, graph.inputs, strict=True):
            place[:rows].copy_(given)
        graph.replay()
        # The next batch writes over what the graph has put out.
        return {name: value[:rows].clone() for name, value in graph.outputs.items()}

    def _run_as_it_is(self, tensors: Sequence[Any]) -> dict[str, Any] | None:
        """Run what is no batch: each input and output has a shape of its own."""
        graph = self._graph_for(tensors, [tuple(t.shape) for t in tensors])
        if graph is None:
            return None
        for given, place in zip(tensors, graph.inputs, strict=True):
            place.copy_(given)
        graph.replay()
        return {name: value.clone() for name, value in graph.outputs.items()}

    def clear(self) -> None:
        """Let all graphs go, and capture none any more: their memory is needed."""
        if self._graphs:
            _log.warning("graphs are let go: their memory is needed")
        self._graphs, self._given_up = {}, True

    def size_for(self, rows: int) -> int:
        """Rows of the graph in which so many run."""
        if self._most_rows is None or rows > self._most_rows:
            return rows
        return min(self._most_rows, 1 << (rows - 1).bit_length())

    def _graph_for(
        self, tensors: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> Captured | None:
        key = tuple(shapes)
        if key in self._graphs:
            return self._graphs[key]
        if self._given_up:
            return None
        if self.nbytes >= self._memory_bytes:
            _log.warning("no more graphs: they keep %d MiB", self.nbytes >> 20)
            self._given_up = True
            return None
        try:
            self._graphs[key] = self._capture(
                [t.new_zeros(shape) for t, shape in zip(tensors, shapes, strict=True)]
            )
        except Exception as error:
            if "OutOfMemory" in type(error).__name__:
                raise
            # A model that looks at its data, or waits for the device, cannot be captured.
            _log.warning("no graphs: one of %s cannot be captured: %s", shapes, error)
            self._given_up = True
            return None
        return self._graphs[key]


class CudaGraph:
    """A graph captured on a stream; its memory comes from a pool that the model's graphs share."""

    def __init__(
        self,
        torch: Any,
        stream: Any,
        pool: Any,
        run: Callable[[Sequence[Any]], dict[str, Any]],
        inputs: Sequence[Any],
    ) -> None:
        self.inputs = inputs
        before = torch.cuda.memory_reserved()
        for _ in range(2):  # libraries take their workspaces, compilers compile
            run(inputs)
        stream.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        # Other models' threads go on with calls of their own meanwhile.
        with torch.cuda.graph(
            self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
        ):
            self.outputs = run(inputs)
        self.nbytes = max(0, torch.cuda.memory_reserved() - before)

    def replay(self) -> None:
        self._graph.replay()
