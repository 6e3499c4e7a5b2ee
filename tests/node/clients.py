"""Clients that send more than one request."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from .bodies import infer, result
from .nodes import RunningNode


class Flood:
    """Clients that send to a model without a pause, until told to stop."""

    def __init__(self, node: RunningNode, pool: ThreadPoolExecutor, model: str) -> None:
        self._node = node
        self._model = model
        self._over = False
        self._clients: list[Future[int]] = [pool.submit(self._run, x) for x in range(3)]

    def _run(self, x: int) -> int:
        count = 0
        while not self._over:
            assert result(infer(self._node, self._model, x)) == [x + 1]
            count += 1
        return count

    def stop(self) -> None:
        """End it; every request must have been answered well."""
        self._over = True
        assert all(client.result() > 0 for client in self._clients)
