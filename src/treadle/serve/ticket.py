"""A request inside the server, from acceptance to its answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from treadle.schedule import Entry
from treadle.serve.tensors import Tensor


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a model returned for one request, and how long each step took, in seconds."""

    outputs: list[Tensor]
    queue_seconds: float
    run_seconds: float


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket(Entry):
    """An accepted request: an entry of the queue with its data and its future answer."""

    inputs: list[Tensor]
    """In the order of the model's declared inputs."""
    answer: asyncio.Future[Answer]
    deadline: float
    started: float = field(default=0.0)
