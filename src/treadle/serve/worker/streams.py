"""An answer in parts, as the worker sees it: what the node has not read yet, and wants still."""

from __future__ import annotations

import threading
from collections import deque

from treadle.serve.worker.arena import aligned
from treadle.serve.worker.messages import MOST_UNTAKEN, Stop, Taken


class Stream:
    """One answer in parts on its way. Its thread asks, the one that hears the node tells."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._places: deque[tuple[int, int]] = deque()
        """Where the parts lie that the node has not taken, the oldest first."""
        self._stopped = False

    def wait(self) -> bool:
        """Wait until one more part may be sent; False if none is wanted any more."""
        with self._told:
            self._told.wait_for(lambda: self._stopped or len(self._places) < MOST_UNTAKEN)
            return not self._stopped

    def place(self, nbytes: int) -> int:
        """Where in the arena the next part goes: over nothing that the node may still read."""
        with self._told:
            start = 0
            for first, end in sorted(self._places):
                if start + nbytes <= first:
                    break
                start = aligned(end)
            # Even an empty one counts: the node says of each part that it has taken it.
            self._places.append((start, start + nbytes))
            return start

    def tell(self, message: Taken | Stop) -> None:
        """Take in what the node says."""
        with self._told:
            if isinstance(message, Taken):
                self._places.popleft()
            else:
                self._stopped = True
            self._told.notify()
