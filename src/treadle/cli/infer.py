"""``treadle infer``: one request, by hand."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import typer

from treadle.cli.show import print_json
from treadle.client.inputs import read_inputs, synthetic_inputs
from treadle.client.node import NodeClient, encode_request
from treadle.errors import InvalidRequestError
from treadle.node.paths import socket_path
from treadle.serve.tensors import Array
from treadle.types import Priority

_SHOWN_ELEMENTS = 64


def run(
    model: str,
    values: list[str],
    *,
    priority: str | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Send one request and print its outputs.

    Raises:
        RequestError: If the inputs do not fit, or the node answers with an error.
        ConnectionError: If no node runs.
    """
    outputs, seconds = asyncio.run(_infer(model, values, _parameters(priority, timeout_seconds)))
    if as_json:
        print_json({name: _plain(array) for name, array in outputs.items()})
        return
    for name, array in outputs.items():
        typer.echo(f"{name}  {array.dtype if array.dtype != object else 'text'}{list(array.shape)}")
        typer.echo(_readable(array))
    typer.echo(f"({seconds * 1000:.1f} ms)", err=True)


def _parameters(priority: str | None, timeout_seconds: float | None) -> dict[str, int | str]:
    parameters: dict[str, int | str] = {}
    if priority is not None:
        try:
            parameters["priority"] = Priority.parse(priority).label
        except ValueError as error:
            raise InvalidRequestError(f"--priority: {error}") from None
    if timeout_seconds is not None:
        if timeout_seconds <= 0:
            raise InvalidRequestError(f"--timeout: {timeout_seconds:g}; allowed: above 0")
        parameters["timeout"] = max(1, int(timeout_seconds * 1e6))
    return parameters


async def _infer(
    model: str, values: list[str], parameters: dict[str, int | str]
) -> tuple[dict[str, Array], float]:
    async with NodeClient(socket_path()) as client:
        metadata = await client.get(f"/v2/models/{model}")
        if not values:
            values = await _example(client, model)
        tensors = read_inputs(metadata, values) if values else synthetic_inputs(metadata)
        request = encode_request(tensors, parameters)
        started = time.perf_counter()
        outputs = await client.infer(model, request)
        return outputs, time.perf_counter() - started


async def _example(client: NodeClient, model: str) -> list[str]:
    """The first example that the configuration names for a model, if it names any."""
    status = await client.get("/treadle/v1/status")
    examples = next(m["examples"] for m in status["models"] if m["name"] == model)
    if not examples:
        typer.echo("no --input and no example configured: sending zeros", err=True)
        return []
    typer.echo(f"input: {examples[0]}", err=True)
    return [examples[0]]


def _plain(array: Array) -> Any:
    if array.dtype == np.object_:
        return [item.decode(errors="replace") for item in array.ravel().tolist()]
    return (array.astype(np.float32) if array.dtype.kind == "V" else array).tolist()


def _readable(array: Array) -> str:
    if array.dtype == np.object_:
        return "\n".join("  " + item.decode(errors="replace") for item in array.ravel().tolist())
    with np.printoptions(threshold=_SHOWN_ELEMENTS, precision=4, suppress=True, linewidth=100):
        return "  " + str(array).replace("\n", "\n  ")
