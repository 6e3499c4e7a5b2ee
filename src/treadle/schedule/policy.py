"""Which request goes first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from treadle.schedule.entry import Entry

_LATE_SECONDS = 1e12
"""Sorts what is late behind all that is not."""


class QueuePolicy(Protocol):
    """An order of requests: strict between ranks, by key within one."""

    preempts: bool
    """Whether an urgent batch may start beside running work of lower rank, where the device
    itself lets the urgent one go first."""

    def rank(self, entry: Entry) -> int:
        """Nothing of a larger rank starts while something of a smaller one could."""
        ...

    def key(self, entry: Entry) -> float:
        """Within a rank and model, the smallest key goes first."""
        ...

    def turn(self, entry: Entry, now: float) -> float:
        """Among the first of each model of a rank, the smallest goes first."""
        ...


class Fifo:
    """First come, first served, whatever the priority. The yardstick for every other policy."""

    preempts = False

    def rank(self, entry: Entry) -> int:
        return 0

    def key(self, entry: Entry) -> float:
        return entry.arrived

    def turn(self, entry: Entry, now: float) -> float:
        return entry.arrived


class HighestPriorityFirst:
    """Strict between the classes, earliest due time first within one, those too late last."""

    preempts = True

    def rank(self, entry: Entry) -> int:
        return entry.priority

    def key(self, entry: Entry) -> float:
        return entry.due + _LATE_SECONDS if entry.late else entry.due

    def turn(self, entry: Entry, now: float) -> float:
        """By the part of its time that it has waited already.

        Were it the earliest due time, a model with a short objective would run whenever a single
        request of it waits: in small batches, that leave too little time to all others.
        """
        if entry.late:
            return _LATE_SECONDS
        return (entry.arrived - now) / max(entry.due - entry.arrived, 1e-9)


POLICIES: Mapping[str, type[QueuePolicy]] = MappingProxyType(
    {"fifo": Fifo, "priority": HighestPriorityFirst}
)
"""Every policy by the name that a configuration file uses."""
