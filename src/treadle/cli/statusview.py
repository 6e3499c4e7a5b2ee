"""``treadle status``: what runs where, what waits and why, which objectives are met."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_GIB = 1 << 30
_MOST_WAITING = 10


def render(status: Mapping[str, Any], models: RenderableType) -> RenderableType:
    """One screen."""
    parts: list[RenderableType] = [_head(status), Text()]
    jobs = status["jobs"]
    shown: set[int] = set()
    for device in status["monitor"]["devices"]:
        uuid = "cpu" if device["kind"] == "cpu" else device["uuid"]
        here = [job for job in jobs["placed"] if uuid in job["devices"]]
        shown |= {job["id"] for job in here}
        parts += [_device(device), *_tasks(here, jobs["services"])]
    rest = [job for job in jobs["placed"] if job["id"] not in shown]
    if rest:
        parts += [Text("elsewhere", "bold"), *_tasks(rest, jobs["services"])]
    parts += _waiting(jobs)
    parts += _ailing(jobs["services"])
    if status["models"]:
        parts += [Text(), models]
    return Group(*parts)


def _head(status: Mapping[str, Any]) -> Text:
    http, device = status["http"], status["device"]
    started = datetime.fromtimestamp(status["started_at"]).astimezone()
    ready = "ready" if status["ready"] else f"not ready: {status['reason']}"
    counts = ", ".join(f"{n} {state}" for state, n in status["jobs"]["counts"].items())
    lines = [
        f"treadle {status['version']}, pid {status['pid']}, since {started:%Y-%m-%d %H:%M:%S}",
        f"state    {ready}",
        f"HTTP     http://{http['host']}:{http['port']}/v2",
        f"gRPC     {_grpc(status['grpc'])}",
        f"config   {status['config']}",
        f"policy   {status['policy']}",
        f"device   {device['name']}, {device['cores']} cores, "
        f"{device['memory_bytes'] / _GIB:.1f} GiB",
        f"monitor  {_monitor(status['monitor'])}",
        f"jobs     {status['jobs']['trouble'] or counts or 'none'}",
        f"open     {status['open_requests']} requests",
    ]
    return Text("\n".join(lines))


def _grpc(grpc: Mapping[str, Any]) -> str:
    """Where the node answers gRPC, or why it does not."""
    where = [f"{grpc['host']}:{grpc['port']}"] if grpc["port"] is not None else []
    where += [f"unix:{grpc['socket']}"] if grpc["socket"] else []
    return "  ".join(where) or f"off: {grpc['reason']}"


def _monitor(monitor: Mapping[str, Any]) -> str:
    """The state of the node's monitor in a line."""
    names = ", ".join(device["name"] for device in monitor["devices"])
    return monitor["trouble"] or f"reads {len(monitor['devices'])} devices: {names}"


def _device(device: Mapping[str, Any]) -> Text:
    """A device in a line, with what is known of it."""
    is_cpu = device["kind"] == "cpu"
    name = "CPU" if is_cpu else f"GPU {device['index']} {device['name']}"
    readings, parts = device["readings"], []
    if (active := readings.get("sm_activity")) is not None:
        parts.append(f"SMs {active:.0%}")
    else:
        busy = [readings.get(metric) for metric in ("gpu_utilization", "cpu_utilization")]
        parts += [f"busy {value:.0%}" for value in busy if value is not None]
    if (used := readings.get("memory_used")) is not None:
        parts.append(f"{used / _GIB:.1f} of {device['memory_bytes'] / _GIB:.1f} GiB")
    if (power := readings.get("power")) is not None:
        parts.append(f"{power:.0f} W")
    if (heat := readings.get("temperature")) is not None:
        parts.append(f"{heat:.0f} °C")
    return Text.assemble((name, "bold"), "  ", ", ".join(parts))


def _tasks(
    jobs: Sequence[Mapping[str, Any]], services: Sequence[Mapping[str, Any]]
) -> list[RenderableType]:
    if not jobs:
        return [Text("  nothing runs")]
    by_name = {service["name"]: service for service in services}
    table = Table.grid(padding=(0, 2))
    for job in jobs:
        service = by_name.get(job["service"])
        table.add_row(
            "",
            str(job["id"]),
            job["name"],
            job["user"],
            job["priority"],
            str(service["health"]) if service and job["state"] == "running" else job["state"],
            "-" if job["since"] is None else duration(time.time() - job["since"]),
            _objective(service) or job["reason"],
        )
    return [table]


def _objective(service: Mapping[str, Any] | None) -> str:
    """How a service fares by its objective, and beside whom it missed it."""
    told = (service or {}).get("objective")
    if not told:
        return ""
    text = f"P99 {told['p99_seconds'] * 1000:g} ms: {told['standing']}, {told['words']}"
    if told["missed"]:
        beside = ", ".join(sorted(told["neighbours"], key=told["neighbours"].get, reverse=True)[:3])
        text += f"; {told['missed']} of {told['requests']} missed" + (
            f", most beside {beside}" if beside else ""
        )
    return f"{text}; {told['impossible']}" if told["impossible"] else text


def _waiting(jobs: Mapping[str, Any]) -> list[RenderableType]:
    waiting = jobs["waiting"]
    if not waiting:
        return []
    table = Table.grid(padding=(0, 2))
    for job in waiting[:_MOST_WAITING]:
        table.add_row("", str(job["id"]), job["name"], job["user"], job["priority"], job["reason"])
    count = jobs["counts"].get("queued", len(waiting))
    return [Text(f"waiting: {count}", "bold"), table]


def _ailing(services: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Services that are not well, and why."""
    ill = [service for service in services if service["health"] not in ("healthy", "starting")]
    if not ill:
        return []
    table = Table.grid(padding=(0, 2))
    for service in ill:
        restarts = f"{service['restarts']} restarts"
        table.add_row("", service["name"], service["health"], restarts, service["reason"])
    return [Text("services that are not well", "bold"), table]


def duration(seconds: float | None) -> str:
    """A length of time as people read it: ``2-13:04:05``."""
    if seconds is None:
        return "-"
    days, rest = divmod(max(0, round(seconds)), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{hours}:{minutes:02}:{rest:02}"
    return f"{days}-{text}" if days else text
