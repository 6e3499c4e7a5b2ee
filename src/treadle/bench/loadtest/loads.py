"""What is asked of one model: how often, how soon, how urgently."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from treadle.errors import ConfigError
from treadle.types import Priority

_KEYS = "rate, p99, priority, input"


class Load(Struct, frozen=True, kw_only=True):
    """One model's part of the load."""

    model: str
    rate: float | None = None
    """Requests per second."""
    p99_seconds: float | None = None
    """Within which 99 of 100 requests are to be answered."""
    priority: str | None = None
    """As the server has it unless given."""
    inputs: tuple[str, ...] = ()
    """Values as ``treadle infer --input`` takes them."""

    @classmethod
    def parse(cls, text: str) -> Load:
        """Read ``MODEL`` or ``MODEL:rate=100,p99=0.05,priority=critical,input=FILE``.

        Raises:
            ConfigError: If it is no such thing; says what is allowed.
        """
        model, _, rest = text.partition(":")
        if not model:
            raise ConfigError(f"{text!r}; allowed: MODEL[:KEY=VALUE,…]")
        given: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            match key if equals else None:
                case "rate":
                    given["rate"] = positive(f"{model}: rate", value)
                case "p99":
                    given["p99_seconds"] = positive(f"{model}: p99", value)
                case "priority":
                    given["priority"] = parse_priority(f"{model}: priority", value)
                case "input":
                    given["inputs"] = (*given.get("inputs", ()), value)
                case _:
                    raise ConfigError(f"{model}: {part!r}; allowed: KEY=VALUE with one of {_KEYS}")
        return cls(model=model, **given)


def parse_loads(texts: Iterable[str], default: Load) -> list[Load]:
    """Read the loads of all models; what one does not say is taken from ``default``.

    Raises:
        ConfigError: If one cannot be read, or a model comes twice.
    """
    loads: list[Load] = []
    for text in texts:
        load = Load.parse(text)
        if any(load.model == other.model for other in loads):
            raise ConfigError(f"{load.model}: given twice; allowed: one load for each model")
        loads.append(
            replace(
                default,
                model=load.model,
                rate=load.rate or default.rate,
                p99_seconds=load.p99_seconds or default.p99_seconds,
                priority=load.priority or default.priority,
                inputs=load.inputs or default.inputs,
            )
        )
    if default.inputs and len(loads) > 1:
        raise ConfigError("--input is for one model; allowed with several: MODEL:input=VALUE")
    return loads


def positive(what: str, text: str) -> float:
    """A number above 0.

    Raises:
        ConfigError: If it is none; ``what`` says of what.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ConfigError(f"{what}: {text!r}; allowed: a number above 0")
    return number


def parse_priority(what: str, text: str) -> str:
    """The label of a priority.

    Raises:
        ConfigError: If there is none of that name; ``what`` says whose.
    """
    try:
        return Priority.parse(text).label
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None
