"""Sends what was made before, and looks whether the answer is one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from itertools import cycle
from typing import Any

import orjson
from msgspec import Struct

from treadle.bench.openloop import TIMED_OUT, WRONG, UnwantedError
from treadle.client.node import Answer, EncodedRequest, NodeClient
from treadle.errors import TreadleError

_LONGEST_LOOKED_INTO = 1 << 16
"""Bytes of JSON; larger answers would take the generator's time, and are told by their status."""
_LONGEST_REASON = 160
_TRY_SECONDS = 60.0
_NUMBER = re.compile(r"\d[\d.e+-]*")


class ModelBodies(Struct, frozen=True, kw_only=True):
    """What a model gets in turn, and what it has to answer with."""

    bodies: tuple[EncodedRequest, ...]
    outputs: frozenset[tuple[str, str]] = frozenset()
    """Names and datatypes; none: whatever it answers is right."""


class CheckedSender:
    """Sends the next request of a model; whatever is not a right answer is an error."""

    def __init__(
        self, client: NodeClient, models: Mapping[str, ModelBodies], timeout_seconds: float
    ) -> None:
        self._client = client
        self._models = models
        self._turns = {name: cycle(model.bodies) for name, model in models.items()}
        self._timeout_seconds = timeout_seconds

    async def __call__(self, model: str) -> int:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._client.ask(model, next(self._turns[model]))
        except TimeoutError:
            raise UnwantedError(TIMED_OUT, "timed out") from None
        if answer.status != HTTPStatus.OK:
            raise UnwantedError(answer.status, f"{answer.status}: {general(answer.error)}")
        if wrong := what_is_wrong(answer, self._models[model].outputs):
            raise UnwantedError(WRONG, f"wrong answer: {wrong}")
        return answer.status


async def try_out(client: NodeClient, model: str, bodies: ModelBodies) -> ModelBodies:
    """Send each body once, and learn from the first answer what outputs there are.

    Raises:
        ConnectionError: If nobody answers.
        TreadleError: If an answer is not right; says what is wrong.
    """
    for body in bodies.bodies:
        try:
            async with asyncio.timeout(_TRY_SECONDS):
                answer = await client.ask(model, body)
        except TimeoutError:
            raise TreadleError(f"model '{model}': no answer within {_TRY_SECONDS:g} s") from None
        if answer.status != HTTPStatus.OK:
            raise TreadleError(f"model '{model}': {answer.error} (HTTP {answer.status})")
        if wrong := what_is_wrong(answer, bodies.outputs):
            raise TreadleError(f"model '{model}' answers wrong: {wrong}")
        if not bodies.outputs:
            bodies = ModelBodies(bodies=bodies.bodies, outputs=_outputs(_head(answer)))
    return bodies


def what_is_wrong(answer: Answer, outputs: frozenset[tuple[str, str]]) -> str:
    """Why a successful answer is not one to this model, empty if it is.

    Args:
        answer: As it came.
        outputs: Names and datatypes that it must have; none: any.
    """
    if _header_nbytes(answer) > _LONGEST_LOOKED_INTO:
        return ""
    try:
        head = _head(answer)
        found = _outputs(head)
        if answer.header_length is not None and _end(answer, head) != len(answer.body):
            return "not as long as it says"
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return "not an answer of the protocol"
    if outputs and found != outputs:
        return f"outputs {_names(found)} and not {_names(outputs)}"
    return ""


def general(text: str) -> str:
    """A reason without its numbers, so that the same reasons are counted together."""
    return _NUMBER.sub("N", text)[:_LONGEST_REASON]


def _header_nbytes(answer: Answer) -> int:
    length = answer.header_length
    return int(length) if length and length.isdecimal() else len(answer.body)


def _head(answer: Answer) -> Any:
    return orjson.loads(answer.body[: _header_nbytes(answer)])


def _outputs(head: Any) -> frozenset[tuple[str, str]]:
    return frozenset((output["name"], output["datatype"]) for output in head["outputs"])


def _end(answer: Answer, head: Any) -> int:
    end = _header_nbytes(answer)
    for output in head["outputs"]:
        end += output.get("parameters", {}).get("binary_data_size", 0)
    return end


def _names(outputs: frozenset[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({datatype})" for name, datatype in sorted(outputs)) or "none"
