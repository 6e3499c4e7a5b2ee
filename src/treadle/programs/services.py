"""Keeps services running: one job after another for each, and a look at its health."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from treadle.errors import RequestError, TreadleError
from treadle.programs.background import Background
from treadle.programs.jobs import Caller, Jobs
from treadle.programs.service import ServiceConfig
from treadle.programs.spec import Job, Submission, sendable
from treadle.types import TaskState

_log = logging.getLogger("treadle.services")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_WELL_SECONDS = 60.0
"""Who has been healthy for so long begins with short pauses again."""
_CHECK_SECONDS, _STARTING_CHECK_SECONDS = 2.0, 0.25
_ANSWER_SECONDS = 2.0
_WAIT_SECONDS = 30.0


class Health(enum.StrEnum):
    """How a service is."""

    WAITING = "waiting"
    """Its job is not running: in the queue, or between two lives."""
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    ENDED = "ended"
    """It ended, or was cancelled, and is not started again."""


class Service:
    """One service, and how it is."""

    def __init__(self, config: ServiceConfig) -> None:
        self.config = config
        self.health = Health.WAITING
        self.reason = ""
        self.job: int | None = None
        self.restarts = 0
        self.since = time.monotonic()
        """When it came to be as it is."""

    def turn(self, health: Health, reason: str = "") -> None:
        """Note how it is now."""
        if health is not self.health:
            self.since = time.monotonic()
            level = logging.WARNING if health is Health.UNHEALTHY else logging.INFO
            _log.log(level, "%s is %s%s", self.config.name, health, reason and f": {reason}")
        self.health, self.reason = health, reason

    def told(self) -> dict[str, Any]:
        """What the status tells of it."""
        config = self.config
        return {
            "name": config.name,
            "health": str(self.health),
            "reason": self.reason,
            "job": self.job,
            "restarts": self.restarts,
            "priority": config.priority,
            "port": config.port,
            "p99_seconds": config.p99_seconds,
        }


class Services:
    """All services of a node."""

    def __init__(
        self,
        configs: Sequence[ServiceConfig],
        jobs: Jobs,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Prepare.

        Args:
            configs: Their tables.
            jobs: Where their lives are queued.
            folder: Of the configuration file.
            environment: What they inherit.
        """
        self.services = [Service(config) for config in configs]
        self._jobs, self._folder = jobs, folder
        self._environment = sendable(environment)
        self._me = Caller(uid=os.geteuid(), user="the node", owner=True)
        self._background = Background()

    async def start(self) -> None:
        """Take up those that run as they should, end those that are not wanted, start the rest."""
        running: dict[str, Job] = {}
        before: dict[str, list[int]] = {}
        wanted = {f"{s.config.name}@{s.config.digest}" for s in self.services}
        for job in self._jobs.instances():
            name = job.spec.service.partition("@")[0]
            if job.cancelled:
                before.setdefault(name, []).append(job.id)
            elif job.spec.service in wanted and job.spec.service not in running:
                running[job.spec.service] = job
            else:
                before.setdefault(name, []).append(job.id)
                await self._jobs.cancel(job.id, self._me)
        for service in self.services:
            life = running.get(f"{service.config.name}@{service.config.digest}")
            number = None if life is None else life.id
            ending = before.get(service.config.name, [])
            self._background.spawn(self._keep(service, number, ending))

    async def close(self) -> None:
        """Let go of them: they run on."""
        await self._background.close()

    def told(self) -> list[dict[str, Any]]:
        """What the status tells of them."""
        return [service.told() for service in self.services]

    async def _keep(self, service: Service, number: int | None, before: Sequence[int]) -> None:
        """Keep a service running, for ever or until it is to be left.

        Args:
            service: Which.
            number: Of its job that runs already; None if there is none.
            before: Jobs of its name that are ending: they have its port until they are over.
        """
        config, pause = service.config, _FIRST_PAUSE_SECONDS
        for other in before:
            service.turn(Health.WAITING, f"job {other}, its last life, is ending")
            while not (await self._jobs.wait(other, _WAIT_SECONDS)).state.over:
                pass
        while True:
            try:
                if number is None:
                    spec = config.spec(self._folder, self._environment)
                    (job,) = await self._jobs.submit(Submission(job=spec), self._me)
                    number = job.id
                service.job = number
                began = time.monotonic()
                job = await self._live(service, number)
            except RequestError as error:  # a disk that is full, or no room for it, ever
                service.turn(Health.WAITING, str(error))
            else:
                number = None
                reason = f"job {job.id} {job.state}{job.reason and ': ' + job.reason}"
                if not _again(config, job):
                    service.turn(Health.ENDED, reason)
                    return
                service.turn(Health.WAITING, reason)
                service.restarts += 1
                if time.monotonic() - began > _WELL_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    async def _live(self, service: Service, number: int) -> Job:
        """Follow one life of a service to its end, and look after its health."""
        checking = asyncio.create_task(self._check(service, number))
        try:
            while not (job := await self._jobs.wait(number, _WAIT_SECONDS)).state.over:
                pass
            return job
        finally:
            checking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await checking

    async def _check(self, service: Service, number: int) -> None:
        """Look again and again whether it is well; end it if it is not for too long."""
        config = service.config
        ill_since: float | None = None
        was_well = False
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                job = await self._jobs.get(number)
                if job.state is not TaskState.RUNNING:
                    ill_since, was_well = None, False
                    service.turn(Health.WAITING, f"its job is {job.state}")
                    await asyncio.sleep(_STARTING_CHECK_SECONDS)
                    continue
                problem = await _problem(session, config)
                if not problem:
                    ill_since, was_well = None, True
                    service.turn(Health.HEALTHY)
                    await asyncio.sleep(_CHECK_SECONDS)
                    continue
                now = time.monotonic()
                if ill_since is None:
                    ill_since = now
                service.turn(Health.UNHEALTHY if was_well else Health.STARTING, problem)
                limit = config.unhealthy_seconds if was_well else config.start_seconds
                if now - ill_since > limit and await self._give_up(service, number, problem, limit):
                    return
                await asyncio.sleep(_CHECK_SECONDS if was_well else _STARTING_CHECK_SECONDS)

    async def _give_up(self, service: Service, number: int, problem: str, limit: float) -> bool:
        """Have it ended; False if nobody has heard that: its supervisor is not connected now."""
        reason = f"not healthy for {limit:g} s: {problem}"
        service.turn(Health.UNHEALTHY, reason)
        with contextlib.suppress(TreadleError):
            return await self._jobs.end(number, reason)
        return False


def _again(config: ServiceConfig, job: Job) -> bool:
    """Whether another life follows."""
    if job.cancelled or config.restart == "never":
        return False
    return config.restart == "always" or job.state is not TaskState.FINISHED


async def _problem(session: aiohttp.ClientSession, config: ServiceConfig) -> str:
    """Why a service is not well; empty if it is."""
    try:
        if config.health_url:
            async with session.get(config.health_url, allow_redirects=False) as answer:
                if answer.status < 400:
                    return ""
                return f"{config.health_url} answers {answer.status}"
        if config.port is not None:
            async with asyncio.timeout(_ANSWER_SECONDS):
                _, writer = await asyncio.open_connection("127.0.0.1", config.port)
            writer.close()
        return ""
    except TimeoutError:
        return f"no answer within {_ANSWER_SECONDS:g} s"
    except (OSError, aiohttp.ClientError, ValueError) as error:
        return str(error) or type(error).__name__
