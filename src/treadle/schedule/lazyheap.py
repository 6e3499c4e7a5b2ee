"""A heap whose entries may leave from the middle."""

from __future__ import annotations

import heapq
from itertools import count

from treadle.schedule.entry import Entry

_SWEEP_FROM = 64


class LazyHeap:
    """Entries by ascending key; those that no longer wait are dropped when they surface.

    One entry stands in several heaps and leaves them all at once when it stops waiting. Those
    that left are swept out when they may be half of the heap, so memory stays proportional to
    what waits. One that left and came again is another entry: its old places do not count.
    """

    __slots__ = ("_items", "_number", "_sweep_at")

    def __init__(self) -> None:
        self._items: list[tuple[float, int, int, Entry]] = []
        self._number = count()  # equal keys: first come, first served
        self._sweep_at = _SWEEP_FROM

    def push(self, key: float, entry: Entry) -> None:
        if len(self._items) >= self._sweep_at:
            self._items = [item for item in self._items if item[3].waiting == item[2]]
            heapq.heapify(self._items)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._items))
        heapq.heappush(self._items, (key, next(self._number), entry.waiting, entry))

    def peek(self) -> tuple[float, Entry] | None:
        """The smallest key and its entry, or None if nothing waits here."""
        items = self._items
        while items and items[0][3].waiting != items[0][2]:
            heapq.heappop(items)
        return (items[0][0], items[0][3]) if items else None
