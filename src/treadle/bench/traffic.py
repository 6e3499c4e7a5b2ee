"""What is sent: each model's examples, encoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from treadle.client.inputs import read_inputs, synthetic_inputs
from treadle.client.node import EncodedRequest, NodeClient, encode_request
from treadle.errors import TreadleError

_READY = "READY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTraffic:
    """A model, what it is promised, and the requests that it gets in turn."""

    name: str
    priority: str
    p99_seconds: float | None
    max_batch: int
    requests: tuple[EncodedRequest, ...]


async def read_traffic(client: NodeClient) -> list[ModelTraffic]:
    """Ask a node for its ready models and encode their examples; zeros for one without.

    Raises:
        ConnectionError: If no node answers.
        RequestError: If an example does not fit its model.
        TreadleError: If no model is ready.
    """
    status = await client.get("/treadle/v1/status")
    ready = [model for model in status["models"] if model["state"] == _READY]
    if not ready:
        raise TreadleError(f"the node has no model that is ready: {status['reason'] or 'none'}")
    return [await _read_model(client, model) for model in ready]


class Sender:
    """Sends the next request of a model and returns its status code."""

    def __init__(self, client: NodeClient, traffic: Sequence[ModelTraffic]) -> None:
        self._client = client
        self._turns = {model.name: cycle(model.requests) for model in traffic}

    async def __call__(self, model: str) -> int:
        return await self._client.send(model, next(self._turns[model]))


async def _read_model(client: NodeClient, model: Mapping[str, Any]) -> ModelTraffic:
    metadata = await client.get(f"/v2/models/{model['name']}")
    inputs = [read_inputs(metadata, [example]) for example in model["examples"]]
    return ModelTraffic(
        name=model["name"],
        priority=model["priority"],
        p99_seconds=model["p99_seconds"],
        max_batch=model["max_batch"],
        requests=tuple(map(encode_request, inputs or [synthetic_inputs(metadata)])),
    )
