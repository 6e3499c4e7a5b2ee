"""Reads ``treadle.toml``: strict, and with errors that say what is allowed."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from treadle.errors import ConfigError
from treadle.programs.service import ServiceConfig, check_services
from treadle.serve.config import Delay, Fraction, ModelConfig, Seconds, check_models

Port = Annotated[int, Meta(ge=0, le=65535)]


class NodeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[node]`` table."""

    name: str = "treadle"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    drain_seconds: Delay = 30.0
    devices: str = "auto"
    group: str = ""
    """Of users that share the node; empty: it is its own user's."""


class HttpTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[http]`` table."""

    host: str = "127.0.0.1"
    port: Port = 8000
    token: str = ""
    open_model_control: bool = False
    shared_memory: bool = False
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**32)] = 64 << 20
    silence_seconds: Seconds = 15.0
    keep_alive_seconds: Annotated[int, Meta(ge=1, le=3600)] = 75


class GrpcTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[grpc]`` table. Without a port and a socket there is no gRPC."""

    host: str = "127.0.0.1"
    port: Port | None = None
    socket: Annotated[str, Meta(max_length=107)] = ""
    max_message_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)] = 64 << 20


class ScheduleTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[schedule]`` table."""

    policy: Literal["fifo", "priority"] = "priority"
    age_limit_seconds: Annotated[float, Meta(gt=0)] = 10.0
    aged_duty: Fraction = 0.1
    clients_may_raise_priority: bool = False


class JobsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ``[jobs]`` table."""

    enabled: bool = True
    memory_fraction: Fraction = 0.25
    """Of a GPU's memory, what a job without a limit reserves. Nothing holds it to that."""
    keep: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    """Jobs that are over and can still be looked at; the oldest beyond are deleted."""
    reserve_after_seconds: Annotated[float, Meta(ge=0)] = 600.0
    """For a job that has waited so long, devices are kept free; inf: never."""


class GpuTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[gpu]]`` table."""

    match: Annotated[str, Meta(min_length=1)] = "*"
    """Which GPUs: a number, the start of a UUID, or ``*`` for all. The last that matches counts."""
    mode: Literal["turns", "parallel"] = "turns"
    minimum_duty: Annotated[float, Meta(ge=0, le=0.5)] = 0.01
    """The least share of time that lower work gets, whatever the objectives."""

    def matches(self, index: int, uuid: str) -> bool:
        if self.match == "*":
            return True
        if self.match.isdecimal():
            return int(self.match) == index
        return uuid.startswith(self.match)


class NodeConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole configuration file."""

    node: NodeTable = NodeTable()
    http: HttpTable = HttpTable()
    grpc: GrpcTable = GrpcTable()
    schedule: ScheduleTable = ScheduleTable()
    jobs: JobsTable = JobsTable()
    gpu: tuple[GpuTable, ...] = ()
    model: tuple[ModelConfig, ...] = ()
    service: tuple[ServiceConfig, ...] = ()


# Set in a container, where editing a file is the harder way.
_VARIABLES: Mapping[str, tuple[str, str, type[str] | type[int]]] = {
    "TREADLE_LOG_LEVEL": ("node", "log_level", str),
    "TREADLE_LOG_FORMAT": ("node", "log_format", str),
    "TREADLE_DEVICES": ("node", "devices", str),
    "TREADLE_HTTP_HOST": ("http", "host", str),
    "TREADLE_HTTP_PORT": ("http", "port", int),
    "TREADLE_HTTP_TOKEN": ("http", "token", str),
    "TREADLE_GRPC_HOST": ("grpc", "host", str),
    "TREADLE_GRPC_PORT": ("grpc", "port", int),
    "TREADLE_POLICY": ("schedule", "policy", str),
}


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> NodeConfig:
    """Read and check a configuration file, and the ``TREADLE_*`` variables over it.

    Raises:
        ConfigError: Names the file, the key and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error}") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    _apply_variables(tables, os.environ if environment is None else environment)
    try:
        _check_keys(tables, NodeConfig, "")
        config = msgspec.convert(tables, NodeConfig)
        check_models(config.model)
        check_services(config.service)
        _check_exposure(config)
        if config.service and not config.jobs.enabled:
            raise ConfigError("service: services are jobs, and jobs.enabled is false")
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_readable(str(error))}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _apply_variables(tables: dict[str, Any], environment: Mapping[str, str]) -> None:
    for variable, (table, key, kind) in _VARIABLES.items():
        value = environment.get(variable, "")
        if not value:
            continue
        try:
            parsed = kind(value)
        except ValueError:
            raise ConfigError(f"{variable}: {value!r}; allowed: a whole number") from None
        entries = tables.setdefault(table, {})
        if isinstance(entries, dict):  # else the check of the file will say what is wrong
            entries[key] = parsed


def _check_keys(value: Any, kind: Any, where: str) -> None:
    """Find unknown keys, which msgspec would reject without saying which ones it knows."""
    tables = [k for k in typing.get_args(kind) if isinstance(k, type) and issubclass(k, Struct)]
    if len(tables) == 1 and typing.get_origin(kind) is not tuple:
        kind = tables[0]  # a table that may be left out
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        fields = typing.get_type_hints(kind, include_extras=False)
        for key, inner in value.items():
            place = f"{where}.{key}" if where else key
            if key not in fields:
                close = difflib.get_close_matches(key, fields, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise ConfigError(f"{place}: unknown key{hint}; allowed: {', '.join(fields)}")
            _check_keys(inner, fields[key], place)
    elif typing.get_origin(kind) is tuple and isinstance(value, list):
        for number, inner in enumerate(value):
            _check_keys(inner, typing.get_args(kind)[0], f"{where}[{number}]")


def _check_exposure(config: NodeConfig) -> None:
    """A port that other machines reach needs a token."""
    for key, host in (("http.host", config.http.host), ("grpc.host", config.grpc.host)):
        if host not in ("127.0.0.1", "::1", "localhost") and not config.http.token:
            raise ConfigError(
                f"{key}: {host!r} can be reached from other machines; allowed: 127.0.0.1, "
                "::1 or localhost, or any address once http.token (or TREADLE_HTTP_TOKEN) is set"
            )


def _readable(message: str) -> str:
    """Put msgspec's path to the key first, and name the choices, which it leaves out.

    Its messages look like this: ``Expected … - at `$.model[0].priority` ``.
    """
    text, _, place = message.rpartition(" - at `$.")
    if not text:
        return message
    place = place.rstrip("`")
    if text.startswith("Invalid enum value"):
        text += f"; allowed: {', '.join(_choices(place))}"
    return f"{place}: {text}"


def _choices(place: str) -> list[str]:
    """The values that a key with a fixed set of them may have."""
    kind: Any = NodeConfig
    for key in re.sub(r"\[[^]]*\]", "", place).split("."):
        kind = typing.get_type_hints(kind)[key]
        if typing.get_origin(kind) is tuple:
            kind = typing.get_args(kind)[0]
    return list(typing.get_args(kind))
