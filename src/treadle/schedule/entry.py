"""A request as the queue sees it."""

from __future__ import annotations

import math
from collections.abc import Hashable

from msgspec import Struct

from treadle.types import Priority


class Entry(Struct, eq=False, kw_only=True):
    """One request that waits, or has waited, for its turn. All times in seconds, one clock."""

    model: str
    batch_key: Hashable
    """Requests of one model with equal keys may share a batch: same inputs, types and shapes."""
    bucket: int | None = None
    """The length that its inputs are padded to, if they are: batches of one model, of equal rows
    and buckets, run for equally long."""
    rows: int = 1
    """How many items it brings to a batch."""
    priority: Priority = Priority.NORMAL
    arrived: float
    due: float = math.inf
    """When it should be answered; orders requests within a class."""
    latest_start: float = math.inf
    """Started after this, it cannot meet its hard deadline."""
    late: bool = False
    """It was given up as to when it is due: those that can still be in time go first. The queue
    sets it."""
    waiting: int = 0
    """While it is in a queue, a number that tells this stay from earlier ones; else 0. The queue
    sets it."""
