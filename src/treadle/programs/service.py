"""What a configuration file may say of a service: a server that the node keeps running."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from treadle.errors import ConfigError, TreadleError
from treadle.monitor.latency import parse_latency_address
from treadle.programs.spec import JobSpec, KernelSeconds, OnLongKernel
from treadle.units import parse_bytes

Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
_URL = re.compile(r"https?://[^\s/]+(/\S*)?")


class ServiceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[service]]`` table. ``docs/configuration.md`` says what each key means."""

    name: Name
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    health: str = ""
    start_seconds: Seconds = 300.0
    unhealthy_seconds: Seconds = 60.0
    restart: Literal["always", "on-failure", "never"] = "always"
    priority: Literal["critical", "normal", "background"] = "critical"
    p99_seconds: Seconds | None = None
    latency_from: str = ""
    memory: str | None = None
    gpus: Annotated[int, Meta(ge=0, le=64)] | None = None
    share: Annotated[float, Meta(ge=0, le=1024)] | None = None
    max_kernel_seconds: KernelSeconds | None = None
    on_long_kernel: OnLongKernel = "pause"
    env: dict[str, str] = {}
    cwd: str = ""
    grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30.0

    @property
    def health_url(self) -> str:
        """Where it says whether it is well; empty if only its port can be tried, or nothing."""
        if self.health.startswith("/"):
            return f"http://127.0.0.1:{self.port}{self.health}"
        return self.health

    @property
    def digest(self) -> str:
        """Changes when anything changes that the process would notice."""
        noticed: tuple[object, ...] = (
            *(self.command, self.env, self.cwd, self.memory, self.gpus, self.priority),
            *(self.share, self.grace_seconds),
        )
        if self.max_kernel_seconds is not None:
            noticed += (self.max_kernel_seconds, self.on_long_kernel)
        return hashlib.sha256(msgspec.json.encode(noticed)).hexdigest()[:12]

    def spec(self, folder: Path, environment: Mapping[str, str]) -> JobSpec:
        """The job that is one life of it.

        Args:
            folder: Of the configuration file: relative paths start there.
            environment: What it inherits.
        """
        return JobSpec(
            command=self.command,
            name=self.name,
            priority=self.priority,
            memory_bytes=None if self.memory is None else parse_bytes(self.memory),
            gpus=self.gpus,
            max_kernel_seconds=self.max_kernel_seconds,
            on_long_kernel=self.on_long_kernel,
            share=self.share if self.share is not None else 0.0,
            env={**environment, **self.env},
            cwd=str((folder / self.cwd).resolve()),
            grace_seconds=self.grace_seconds,
            service=f"{self.name}@{self.digest}",
        )


def check_services(services: tuple[ServiceConfig, ...]) -> None:
    """Refuse what each key may say alone, but not together.

    Raises:
        ConfigError: Names the key and what is allowed.
    """
    seen: set[str] = set()
    for number, service in enumerate(services):
        where = f"service[{number}] ({service.name})"
        if service.name in seen:
            raise ConfigError(f"{where}: name: {service.name!r} is already taken")
        seen.add(service.name)
        if service.health.startswith("/"):
            if service.port is None:
                raise ConfigError(f"{where}: health: a path needs a port; allowed: port = 8001")
        elif service.health and not _URL.fullmatch(service.health):
            raise ConfigError(
                f'{where}: health: {service.health!r}; allowed: "/path" or "http://host:port/path"'
            )
        if service.latency_from:
            try:
                parse_latency_address(service.latency_from)
            except ConfigError as error:
                raise ConfigError(f"{where}: latency_from: {error}") from None
        if service.latency_from and service.p99_seconds is None:
            raise ConfigError(f"{where}: latency_from: needs p99_seconds, the objective")
        if service.max_kernel_seconds is None and service.on_long_kernel != "pause":
            raise ConfigError(f"{where}: on_long_kernel: needs max_kernel_seconds, the limit")
        if service.max_kernel_seconds is not None and service.gpus == 0:
            raise ConfigError(
                f"{where}: max_kernel_seconds: without GPUs there are no kernels to watch"
            )
        if service.memory is not None:
            try:
                parse_bytes(service.memory)
            except TreadleError as error:
                raise ConfigError(f"{where}: memory: {error}") from None
