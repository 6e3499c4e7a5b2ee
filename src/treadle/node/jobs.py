"""The node's jobs: started once the devices are known; a database that fails is a reason."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.devices.cpu import cpu_device
from treadle.devices.device import DeviceKind
from treadle.devices.mps import ClientLimits
from treadle.errors import StartError, UnavailableError
from treadle.monitor.snapshot import MonitorSnapshot
from treadle.node.config import GpuTable, JobsTable
from treadle.node.modes import GpuModes
from treadle.node.objectives import Objectives
from treadle.node.paths import make_private, runtime_folder
from treadle.node.rooms import find_rooms
from treadle.node.steering import Steered, Steering
from treadle.programs.holding import Gatekeeper, queue_name
from treadle.programs.jobs import Jobs
from treadle.programs.service import ServiceConfig
from treadle.programs.services import Services
from treadle.programs.spec import Job
from treadle.programs.starting import Starter
from treadle.programs.store import InUseError, Store
from treadle.schedule.place import Room
from treadle.turnstile import default_folder
from treadle.types import Mode

_log = logging.getLogger("treadle.jobs")
_POLL_SECONDS = 0.05
_KNOWN_SECONDS = 15.0
_SETTLED_SECONDS = 30.0
_MOST_TOLD = 100
_IN_USE_SECONDS = 0.5
"""Between two looks whether another node has let go of the queue."""
_KEPT_SECONDS = 0.2
"""Rooms change as fast as memory is used; a queue asks for each job."""


class NodeJobs:
    """Opens the queue with the node, and lets go of it with the node."""

    def __init__(
        self,
        config: JobsTable,
        services: Sequence[ServiceConfig],
        gpus: Sequence[GpuTable],
        file: Path,
        folder: Path,
        snapshot: Callable[[], MonitorSnapshot],
        models: Callable[[], Iterable[Steered]],
    ) -> None:
        """Prepare.

        Args:
            config: The ``[jobs]`` table.
            services: The ``[[service]]`` tables.
            gpus: The ``[[gpu]]`` tables.
            file: The configuration file.
            folder: For the database and the jobs' folders.
            snapshot: What the monitor sees.
            models: The served models with an objective.
        """
        self._models = models
        self._config, self._folder, self._snapshot = config, folder, snapshot
        self._wanted, self._gpus, self._file = services, gpus, file
        self._modes: GpuModes | None = None
        self._steering: Steering | None = None
        self._objectives: Objectives | None = None
        self._services: Services | None = None
        self._keeper: Gatekeeper | None = None
        self._settled = asyncio.Event()
        """Once the GPUs are in their modes, or will not come to it."""
        self._cpu = cpu_device()
        self._rooms: list[Room] = []
        self._looked_at = float("-inf")
        self._opened: Jobs | None = None
        self._jobs: Jobs | None = None
        self._reason = "the node has not found its devices yet"
        if not config.enabled:
            self._reason = "this node takes no jobs: jobs.enabled is false"

    @property
    def jobs(self) -> Jobs:
        """The open queue.

        Raises:
            UnavailableError: If it is not open; says why.
        """
        if self._jobs is None:
            raise UnavailableError(self._reason, retry_after_seconds=1.0)
        return self._jobs

    @property
    def reason(self) -> str:
        """Why there is no queue; empty if there is one."""
        return "" if self._jobs is not None else self._reason

    def status(self) -> dict[str, Any]:
        """What the node's status tells of them."""
        if self._jobs is None:
            nothing: dict[str, Any] = {
                "counts": {},
                "services": [],
                "modes": [],
                "control": [],
                "placed": [],
                "waiting": [],
            }
            return {"trouble": self._reason, **nothing}
        control = self.steered()
        words = {one["task"]: one for gpu in control for one in gpu["objectives"]}
        services = self._services.told() if self._services is not None else []
        return {
            "trouble": "",
            "counts": self._jobs.counts(),
            "services": [{**one, "objective": words.get(one["name"])} for one in services],
            "control": control,
            "modes": [] if self._modes is None else self._modes.told(),
            **self._jobs.overview(_MOST_TOLD),
        }

    async def start(self) -> None:
        """Open the queue, and take up what an earlier node has left."""
        try:
            if self._config.enabled:
                await self._start()
        except Exception as error:  # the node serves all the same, and says why there are no jobs
            self._jobs, self._reason = None, f"there are no jobs: {error}"
            _log.exception("the queue could not be started")
        finally:
            self._settled.set()

    async def _start(self) -> None:
        deadline = time.monotonic() + _KNOWN_SECONDS
        # The monitor's own thread finds them, and tells nobody.
        while self._snapshot().looking:
            if time.monotonic() > deadline:
                _log.warning("the devices are still being looked for: no job starts before")
                deadline = float("inf")
            await asyncio.sleep(_POLL_SECONDS)
        store = await self._open()
        if store is None:
            return
        turnstiles = default_folder()
        turnstiles.mkdir(mode=0o700, parents=True, exist_ok=True)
        modes = self._modes = GpuModes(
            self._wanted_modes(),
            make_private(runtime_folder()),
            self._folder / "modes.json",
            users=self._users,
            again=self._again,
            changed=self._look_at_rooms,
        )
        starter = Starter(
            turnstiles, self._folder, self._config.memory_fraction, parallel=modes.environment
        )
        keeper = self._keeper = Gatekeeper(turnstiles, queue_name(self._folder))
        config = self._config
        jobs = Jobs(
            *(store, self._folder, starter, keeper, self.rooms),
            keep=config.keep,
            reserve_after_seconds=config.reserve_after_seconds,
        )
        self._opened = jobs
        await jobs.start()
        await modes.start()
        self._settled.set()
        self._jobs = jobs
        self._services = Services(self._wanted, jobs, self._file.parent)
        await self._services.start()
        self._steering = Steering(self._duties(), turnstiles)
        self._objectives = Objectives(self._steering, jobs, self._services, self._models)
        await self._objectives.start()

    async def _open(self) -> Store | None:
        """Open the queue; if another node has it, as soon as that one has ended."""
        while True:
            try:
                make_private(self._folder)
                return await asyncio.to_thread(Store, self._folder / "jobs.db")
            except (StartError, OSError) as error:
                if self._reason != str(error):
                    _log.error("there are no jobs: %s", error)
                self._reason = str(error)
                if not isinstance(error, InUseError):
                    return None
            await asyncio.sleep(_IN_USE_SECONDS)

    @property
    def modes(self) -> GpuModes:
        """The modes of the GPUs.

        Raises:
            UnavailableError: If they are not known yet.
        """
        if self._modes is None or self._jobs is None:
            raise UnavailableError(self._reason, retry_after_seconds=1.0)
        return self._modes

    async def client_environment(self, uuid: str, limits: ClientLimits) -> Mapping[str, str]:
        """What a worker of the node's own needs on a GPU in parallel mode; nothing on others.

        Waits until the GPU is in its mode, or it is plain that it does not come to that.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_SECONDS):
                await self._settled.wait()
        return {} if self._modes is None else self._modes.serve(uuid, limits)

    def _users(self, uuid: str) -> list[Job]:
        return [] if self._opened is None else self._opened.on_device(uuid)

    async def _again(self, job: Job, reason: str) -> None:
        if self._opened is not None:
            await self._opened.again(job, reason)

    @property
    def objectives(self) -> Objectives:
        """By what is steered.

        Raises:
            UnavailableError: If nothing is yet.
        """
        if self._objectives is None:
            raise UnavailableError(self._reason, retry_after_seconds=1.0)
        return self._objectives

    def steered(self) -> list[dict[str, Any]]:
        """What the controllers tell."""
        return [] if self._steering is None else self._steering.told()

    def long_kernels(self) -> dict[tuple[str, str], int]:
        """How many kernels ran for too long, by GPU and by what was to be done."""
        return {} if self._opened is None else self._opened.long_kernels()

    def _tables(self) -> dict[str, GpuTable]:
        """What the configuration says of each GPU."""
        found = {}
        for view in self._snapshot().devices:
            info = view.info
            if info.kind is not DeviceKind.CPU:
                tables = [table for table in self._gpus if table.matches(info.index, info.uuid)]
                found[info.uuid] = tables[-1] if tables else GpuTable()
        return found

    def _wanted_modes(self) -> dict[str, Mode]:
        return {uuid: Mode(table.mode) for uuid, table in self._tables().items()}

    def _duties(self) -> dict[str, float]:
        return {uuid: table.minimum_duty for uuid, table in self._tables().items()}

    def _look_at_rooms(self) -> None:
        """What was seen of the devices counts no more."""
        self._looked_at = float("-inf")

    def rooms(self) -> list[Room]:
        """The devices, with what others have taken."""
        now = time.monotonic()
        if now - self._looked_at > _KEPT_SECONDS:
            self._rooms = find_rooms(
                self._snapshot(),
                self._cpu,
                self._modes,
                (lambda uuid: 0) if self._keeper is None else self._keeper.memory_bytes,
            )
            self._looked_at = now
        return self._rooms

    def drain(self) -> None:
        """Start nothing more."""
        if self._opened is not None:
            self._opened.drain()

    async def close(self) -> None:
        """Let go: what runs goes on."""
        self._jobs, self._reason = None, "the node is ending"
        # The queue before the modes: nothing is to be started on a daemon that ends.
        for part in (self._objectives, self._services, self._opened, self._modes):
            if part is not None:
                try:
                    await part.close()
                except Exception:  # one that cannot end well keeps no other from it
                    _log.exception("%s could not be ended", type(part).__name__)
