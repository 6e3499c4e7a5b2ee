"""Pure decisions: who runs next, and with whom. No clocks, no devices, no I/O."""

from treadle.schedule.batching import BatchChoice, BatchRule, FixedBatch, ObjectiveBatch
from treadle.schedule.buckets import EachBucket
from treadle.schedule.capacity import Capacity
from treadle.schedule.entry import Entry
from treadle.schedule.patience import Patience
from treadle.schedule.policy import POLICIES, Fifo, HighestPriorityFirst, QueuePolicy
from treadle.schedule.queue import Batch, RequestQueue

__all__ = [
    "POLICIES",
    "Batch",
    "BatchChoice",
    "BatchRule",
    "Capacity",
    "EachBucket",
    "Entry",
    "Fifo",
    "FixedBatch",
    "HighestPriorityFirst",
    "ObjectiveBatch",
    "Patience",
    "QueuePolicy",
    "RequestQueue",
]
