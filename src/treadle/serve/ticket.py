"""A request inside the server, from acceptance to its answer."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from treadle.schedule import Entry
from treadle.serve.model import ServedModel
from treadle.serve.parts import Parts
from treadle.serve.tensors import Tensor


class Answer(Struct, eq=False):
    """What a model returned for one request, and how long each step took, in seconds.

    An answer in parts has no outputs here.
    """

    outputs: list[Tensor]
    queue_seconds: float
    run_seconds: float


class Ticket(Entry, eq=False, kw_only=True):
    """An accepted request: an entry of the queue with its data and its future answer."""

    served: ServedModel
    inputs: list[Tensor]
    """In the order of the model's declared inputs."""
    length: int | None = None
    """How long its padded inputs are without padding; None if the model has none."""
    answer: asyncio.Future[Answer]
    parts: Parts | None = None
    """Of a model that answers in parts."""
    deadline: float
    started: float = 0.0
