"""The engines of a node, one for each device: a request goes to its model's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from treadle.errors import RequestError
from treadle.serve.engine import Engine
from treadle.serve.ticket import Ticket


class Engines:
    """Speaks for all of them. All methods belong to the event loop's thread."""

    def __init__(self, of_model: Mapping[str, Engine]) -> None:
        """Take the engine of each model."""
        self._of_model = of_model
        self._all = list({id(engine): engine for engine in of_model.values()}.values())

    @property
    def open_requests(self) -> int:
        """Requests accepted and not yet answered."""
        return sum(engine.open_requests for engine in self._all)

    def waiting(self, model: str) -> int:
        """Requests that wait for ``model``."""
        return self._of_model[model].waiting(model)

    def submit(self, ticket: Ticket) -> None:
        """Accept a request; its ``answer`` will be set, whatever happens.

        Raises:
            UnavailableError: If the model's queue is full.
            DeadlineError: If the model is known to take longer than the deadline allows.
        """
        self._of_model[ticket.model].submit(ticket)

    def abandon(self, ticket: Ticket) -> None:
        """Drop a request whose caller has gone. If it already runs, its answer is discarded."""
        self._of_model[ticket.model].abandon(ticket)

    def wake(self, models: Iterable[str]) -> None:
        """Look for work to start, now that something has changed for these models."""
        for engine in {id(e): e for e in (self._of_model[model] for model in models)}.values():
            engine.wake()

    def fail_waiting(self, model: str, error: RequestError) -> None:
        """Answer every request that waits for ``model`` with an error."""
        self._of_model[model].fail_waiting(model, error)

    def fail_all(self, error: RequestError) -> None:
        """Answer every request that waits, or comes to wait again, with an error."""
        for engine in self._all:
            engine.fail_all(error)

    async def drained(self, model: str | None = None) -> None:
        """Wait until every accepted request (of ``model``, if given) is answered."""
        chosen = self._all if model is None else [self._of_model[model]]
        await asyncio.gather(*(engine.drained(model) for engine in chosen))

    def check_integrity(self) -> None:
        """Compare the books.

        Raises:
            AssertionError: If they disagree.
        """
        for engine in self._all:
            engine.check_integrity()
