"""Finds out what a node can do, so that a load can be stated as a part of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from treadle.bench.closedloop import for_seconds, in_proportion, run_closed
from treadle.bench.results import Calibration
from treadle.bench.traffic import ModelTraffic, Sender
from treadle.client.node import NodeClient
from treadle.errors import ConfigError, TreadleError

Stage = Callable[[str, float], None]
"""Told what is being done now, and for about how many seconds."""

_FEWEST_CLIENTS = 8
_MOST_CLIENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to look, in seconds."""

    service: float = 1.0
    """At each model alone."""
    warm_up: float = 1.0
    """At all models together, before anything is measured."""
    saturation: float = 8.0
    """At all models together."""


def parse_mix(given: Iterable[str], models: Sequence[str]) -> dict[str, float]:
    """Read ``MODEL=PART``: parts of the device's time in relation to each other, 1 unless given.

    Raises:
        ConfigError: If a model is unknown, or a part is no number from 0.
    """
    parts = dict.fromkeys(models, 1.0)
    for text in given:
        name, equals, number = text.rpartition("=")
        if not equals or name not in parts:
            raise ConfigError(
                f"--mix {text!r}; allowed: MODEL=PART with one of {', '.join(models)}"
            )
        try:
            parts[name] = float(number)
        except ValueError:
            parts[name] = math.nan
        if not 0 <= parts[name] < math.inf:
            raise ConfigError(f"--mix {text!r}: {number!r}; allowed: a number from 0")
    if not any(parts.values()):
        raise ConfigError("--mix: every part is 0; allowed: at least one above 0")
    return parts


async def calibrate(
    client: NodeClient,
    traffic: Sequence[ModelTraffic],
    parts: Mapping[str, float],
    effort: Effort,
    stage: Stage,
    *,
    measure_capacity: bool,
) -> Calibration:
    """Measure each model alone and, if asked, all of them together.

    Raises:
        RequestError: If a model fails on an example; says why.
        TreadleError: If requests fail while the capacity is measured.
    """
    service = {}
    for model in traffic:
        if parts[model.name] > 0:
            stage(f"{model.name} alone", effort.service)
            service[model.name] = await _service_seconds(client, model, effort.service)
    proportions = _proportions(service, parts)
    clients = clients_for(traffic)
    while await warm_up(client, traffic, proportions, clients, effort, stage) and clients > 1:
        clients //= 2  # refused: the queues are shorter than that
    capacity = None
    if measure_capacity:
        stage("capacity", effort.saturation)
        capacity = await _capacity(client, traffic, proportions, clients, effort.saturation)
    return Calibration(
        parts={name: parts[name] for name in service},
        service_seconds=service,
        proportions=proportions,
        clients=clients,
        capacity_requests_per_second=capacity,
    )


async def warm_up(
    client: NodeClient,
    traffic: Sequence[ModelTraffic],
    proportions: Mapping[str, float],
    clients: int,
    effort: Effort,
    stage: Stage,
) -> int:
    """Let every model see its examples and some batches; returns how many requests were refused.

    Raises:
        RequestError: If a model fails on an example; says why.
    """
    stage("warming up", effort.warm_up)
    for model in traffic:
        if model.name in proportions:
            await _once_each(client, model)
    models = in_proportion(proportions, for_seconds(effort.warm_up))
    return (await run_closed(Sender(client, traffic), models, clients)).refused


def clients_for(traffic: Sequence[ModelTraffic]) -> int:
    """So many that a full batch can wait while another runs, for every model."""
    return min(_MOST_CLIENTS, max(_FEWEST_CLIENTS, 2 * sum(m.max_batch for m in traffic)))


async def _service_seconds(client: NodeClient, model: ModelTraffic, seconds: float) -> float:
    """Mean time that a request takes alone, all the way, over whole rounds of the examples.

    Without what it waited in the queue: alone, that is the delay in which a batch could fill.
    """
    await _once_each(client, model)
    send, count = Sender(client, [model]), 0
    queued, started = await _queue_seconds(client, model), time.monotonic()
    while (taken := time.monotonic() - started) < seconds:
        for _ in model.requests:
            _check(model.name, await send(model.name))
        count += len(model.requests)
    return (taken - (await _queue_seconds(client, model) - queued)) / count


async def _queue_seconds(client: NodeClient, model: ModelTraffic) -> float:
    """How long all requests of a model together have waited for their turn so far."""
    answer = await client.get(f"/v2/models/{model.name}/stats")
    queue_nanoseconds: int = answer["model_stats"][0]["inference_stats"]["queue"]["ns"]
    return queue_nanoseconds / 1e9


async def _once_each(client: NodeClient, model: ModelTraffic) -> None:
    for request in model.requests:
        await client.infer(model.name, request)


async def _capacity(
    client: NodeClient,
    traffic: Sequence[ModelTraffic],
    proportions: Mapping[str, float],
    clients: int,
    seconds: float,
) -> float:
    models = in_proportion(proportions, for_seconds(seconds))
    run = await run_closed(Sender(client, traffic), models, clients)
    if run.failed:
        raise TreadleError(f"{run.failed} requests failed while the capacity was measured")
    if not run.completed:
        raise TreadleError("every request was refused while the capacity was measured")
    return run.requests_per_second


def _proportions(service: Mapping[str, float], parts: Mapping[str, float]) -> dict[str, float]:
    """Each model's part of all requests, so that its part of the time is the one wanted."""
    rates = {name: parts[name] / seconds for name, seconds in service.items()}
    total = sum(rates.values())
    return {name: rate / total for name, rate in rates.items()}


def _check(model: str, status: int) -> None:
    if status != HTTPStatus.OK:
        raise TreadleError(f"model '{model}' answered HTTP {status} while it was measured alone")
