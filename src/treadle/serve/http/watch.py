"""Sees clients go away while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from treadle.serve.ticket import Ticket

_PATIENCE_SECONDS = 0.02


class ClientWatch:
    """Watches the connections of requests that have waited for a while.

    Most answers come before a client could lose patience, and a watch for each would cost as
    much as decoding it. So all are looked at together, now and then, and only those that still
    wait get one.
    """

    def __init__(self, on_gone: Callable[[Ticket], None]) -> None:
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._young: dict[Ticket, Receive] = {}
        self._older: dict[Ticket, Receive] = {}
        self._watches: dict[Ticket, asyncio.Task[None]] = {}
        self._look_planned = False

    def watch(self, ticket: Ticket, receive: Receive) -> None:
        """Call ``on_gone`` if the client hangs up before ``forget`` is called."""
        self._young[ticket] = receive
        if not self._look_planned:
            self._look_planned = True
            self._loop.call_later(_PATIENCE_SECONDS, self._look)

    def forget(self, ticket: Ticket) -> None:
        """The request is answered."""
        if self._young.pop(ticket, None) is None and self._older.pop(ticket, None) is None:
            self._watches.pop(ticket).cancel()

    def _look(self) -> None:
        """Watch those that were young at the last look already."""
        for ticket, receive in self._older.items():
            self._watches[ticket] = self._loop.create_task(self._run(ticket, receive))
        self._older, self._young = self._young, {}
        self._look_planned = bool(self._older)
        if self._look_planned:
            self._loop.call_later(_PATIENCE_SECONDS, self._look)

    async def _run(self, ticket: Ticket, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._on_gone(ticket)
