"""Who has an objective: services, and programs that somebody runs with one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from treadle.devices.mps.processes import Process, identify, lives
from treadle.errors import InvalidRequestError, TreadleError
from treadle.monitor.latency import LatencyAddress, parse_latency_address
from treadle.node.steering import Steered, Steering
from treadle.programs.jobs import Jobs
from treadle.programs.service import Name, Seconds
from treadle.programs.services import Services
from treadle.programs.supervisor.start import descendants
from treadle.types import Priority, TaskState

_log = logging.getLogger("treadle.control")
_LOOK_SECONDS = 1.0


class Wish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to steer by a program that runs already."""

    name: Name
    p99_seconds: Seconds
    latency_from: Annotated[str, Meta(min_length=1)]
    priority: str = "critical"


class Objectives:
    """Tells the controllers by what to steer, as services and programs come and go."""

    def __init__(
        self,
        steering: Steering,
        jobs: Jobs,
        services: Services,
        models: Callable[[], Iterable[Steered]],
    ) -> None:
        self._steering, self._jobs, self._services = steering, jobs, services
        self._models = models
        self._wishes: dict[Process, tuple[Wish, LatencyAddress]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._steering.start()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End the controllers; knobs stay as they are."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._steering.close)

    def wish(self, pid: int, body: bytes) -> None:
        """Steer by a program from now on, until it ends.

        Raises:
            InvalidRequestError: If the wish is none; says what is allowed.
        """
        try:
            wish = msgspec.json.decode(body, type=Wish)
            Priority.parse(wish.priority)
            address = parse_latency_address(wish.latency_from)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TreadleError) as error:
            raise InvalidRequestError(f"not an objective: {error}") from None
        if (process := identify(pid)) is None:
            raise InvalidRequestError(f"process {pid} does not run here")
        self._wishes[process] = (wish, address)

    async def _keep(self) -> None:
        while True:
            try:
                tasks = await asyncio.to_thread(lambda: [*self._of_programs()])
                await asyncio.to_thread(
                    self._steering.follow, [*self._models(), *self._of_services(), *tasks]
                )
            except Exception:
                _log.exception("the objectives could not be looked through")
            await asyncio.sleep(_LOOK_SECONDS)

    def _of_services(self) -> Iterator[Steered]:
        placed = {job.id: job for job in self._jobs.instances() if job.state is TaskState.RUNNING}
        for service in self._services.services:
            config, job = service.config, placed.get(service.job or 0)
            if config.p99_seconds is None or job is None:
                continue
            yield Steered(
                name=config.name,
                priority=job.priority,
                p99_seconds=config.p99_seconds,
                address=parse_latency_address(config.latency_from) if config.latency_from else None,
                gpus=job.devices,
            )

    def _of_programs(self) -> Iterator[Steered]:
        for process, (wish, address) in [*self._wishes.items()]:
            if not lives(process):
                self._wishes.pop(process, None)
                continue
            pid = process.pid
            yield Steered(
                name=f"{wish.name} ({pid})",  # it is nobody else's, whatever it calls itself
                priority=Priority.parse(wish.priority),
                p99_seconds=wish.p99_seconds,
                address=address,
                gpus=self._steering.where([pid, *descendants(pid)]),
            )
