"""``treadle up`` and ``treadle check``."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import typer
import uvloop
from msgspec.structs import replace

from treadle.errors import ConfigError
from treadle.node.config import NodeConfig, load_config
from treadle.node.group import find_group, share_turnstiles
from treadle.node.grpc import NodeGrpc
from treadle.node.listeners import Listeners
from treadle.node.logs import set_up_logging
from treadle.node.node import Node
from treadle.node.paths import make_private, socket_path, state_folder
from treadle.schedule import POLICIES
from treadle.turnstile import default_folder


def run(file: Path, *, port: int | None, grpc_port: int | None, policy: str | None) -> int:
    """Be a node until told to stop; returns the exit code.

    Raises:
        ConfigError: If the file, or an option over it, is not usable.
        StartError: If the port or the socket cannot be had, or not shared.
    """
    config = _with_options(load_config(file), port, grpc_port, policy)
    _raise_file_limit()
    group = find_group(config.node.group) if config.node.group else None
    if group is not None:
        share_turnstiles(default_folder(), group)
    listeners = Listeners(config.http.host, config.http.port, socket_path(), group)
    config = replace(config, http=replace(config.http, port=listeners.port))
    folder = make_private(state_folder())
    set_up_logging(config.node.log_level, config.node.log_format, folder / "node.log")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_live(config, file.resolve(), listeners))
    finally:
        listeners.close()


def check(file: Path) -> None:
    """Say that a configuration file is good.

    Raises:
        ConfigError: If it is not; says where and what is allowed.
    """
    config = load_config(file)
    typer.echo(f"{file}: good; {len(config.model)} models")


async def _live(config: NodeConfig, file: Path, listeners: Listeners) -> int:
    node = Node(config, file, listeners)
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda _: None if ready.cancelled() else _greet(config, node))
    try:
        return await node.run(ready)
    finally:
        ready.cancel()


def _greet(config: NodeConfig, node: Node) -> None:
    """Say where the node is and how to use it."""
    address = f"http://{_in_address(config.http.host)}:{config.http.port}"
    state = f"not ready: {node.broken}" if node.broken else "ready"
    lines = [
        f"treadle is {state}",
        f"  HTTP     {address}/v2          (Open Inference Protocol)",
        *_where_grpc_is(config, node.grpc),
        f"  metrics  {address}/metrics",
        f"  socket   {socket_path()}",
        f"  log      {state_folder() / 'node.log'}",
    ]
    if config.model:
        lines += ["", "Try, in another terminal:", f"  treadle infer {config.model[0].name}"]
        lines += [f"  {line}" for line in node.sample_requests(address)]
    typer.echo("\n".join(lines))


def _where_grpc_is(config: NodeConfig, grpc: NodeGrpc) -> list[str]:
    if config.grpc.port is None and not config.grpc.socket:
        return []
    if grpc.reason:
        return [f"  gRPC     off: {grpc.reason}"]
    tcp = [] if grpc.port is None else [f"{_in_address(config.grpc.host)}:{grpc.port}"]
    local = [] if grpc.socket is None else [f"unix:{grpc.socket}"]
    return [f"  gRPC     {'  '.join(tcp + local)}"]


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _with_options(
    config: NodeConfig, port: int | None, grpc_port: int | None, policy: str | None
) -> NodeConfig:
    if port is not None:
        config = replace(config, http=replace(config.http, port=port))
    if grpc_port is not None:
        config = replace(config, grpc=replace(config.grpc, port=grpc_port))
    if policy is not None:
        if policy not in POLICIES:
            raise ConfigError(f"--policy: {policy!r}; allowed: {', '.join(POLICIES)}")
        config = replace(config, schedule=replace(config.schedule, policy=policy))
    return config


def _raise_file_limit() -> None:
    """Every connection is an open file; take as many as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
