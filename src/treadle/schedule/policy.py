"""Which request goes first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from treadle.schedule.entry import Entry


class QueuePolicy(Protocol):
    """An order of requests: strict between ranks, by key within one."""

    preempts: bool
    """Whether an urgent batch may start beside running work of lower rank, where the device
    itself lets the urgent one go first."""

    def rank(self, entry: Entry) -> int:
        """Nothing of a larger rank starts while something of a smaller one could."""
        ...

    def key(self, entry: Entry) -> float:
        """Within a rank, the smallest key goes first."""
        ...


class Fifo:
    """First come, first served, whatever the priority. The yardstick for every other policy."""

    preempts = False

    def rank(self, entry: Entry) -> int:
        return 0

    def key(self, entry: Entry) -> float:
        return entry.arrived


class HighestPriorityFirst:
    """Strict between the classes, earliest due time first within one."""

    preempts = True

    def rank(self, entry: Entry) -> int:
        return entry.priority

    def key(self, entry: Entry) -> float:
        return entry.due


POLICIES: Mapping[str, type[QueuePolicy]] = MappingProxyType(
    {"fifo": Fifo, "priority": HighestPriorityFirst}
)
"""Every policy by the name that a configuration file uses."""
