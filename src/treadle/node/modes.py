"""How each GPU is shared: in turns, or in parallel under an MPS daemon of the node's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.devices.mps import ClientLimits, MpsDaemon, MpsError, MpsState
from treadle.errors import InvalidRequestError, NotFoundError, UnavailableError
from treadle.programs.spec import Job
from treadle.types import Mode

_log = logging.getLogger("treadle.modes")
_CHECK_SECONDS = 2.0
_LEAST_SHARE = 0.01
"""Of the SMs: MPS knows whole percents only."""
_RETRY_SECONDS = 30.0
"""After a daemon could not be started."""

Users = Callable[[str], Sequence[Job]]
Again = Callable[[Job, str], Awaitable[None]]
MakeDaemon = Callable[[Path, Sequence[str]], MpsDaemon]


class Gpu:
    """One GPU, its mode, and the one that it is to have."""

    def __init__(self, uuid: str, wanted: Mode) -> None:
        self.uuid, self.mode, self.wanted = uuid, Mode.TURNS, wanted
        self.daemon: MpsDaemon | None = None
        self.trouble = ""
        """Why it is not in the mode that it is to have."""
        self.retry_at = 0.0
        self.restart = False
        """Whether what runs there is started again, so that the mode can change."""


class GpuModes:
    """Keeps every GPU in its mode, and daemons well."""

    def __init__(
        self,
        wanted: Mapping[str, Mode],
        runtime: Path,
        file: Path,
        *,
        users: Users,
        again: Again,
        changed: Callable[[], None] = lambda: None,
        make: MakeDaemon = MpsDaemon,
    ) -> None:
        """Prepare.

        Args:
            wanted: The mode of each GPU, by UUID, as the configuration says.
            runtime: Folder for the daemons' own; its path must be short.
            file: Where changes at run time are kept.
            users: The jobs that have a place on a GPU.
            again: Ends a job, and queues it anew.
            changed: Told when what may start on a GPU has changed.
            make: Makes a daemon for a folder and its GPUs.
        """
        self._runtime, self._file = runtime, file
        self._users, self._again, self._make = users, again, make
        self._on_change = changed
        self._changed = _read(file)
        self._gpus = {
            uuid: Gpu(uuid, self._changed.get(uuid, mode)) for uuid, mode in wanted.items()
        }
        self._serving: set[str] = set()
        """GPUs on which the node serves models."""
        self._look = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Bring every GPU into its mode. A daemon that an earlier node left is taken up again."""
        for gpu in self._gpus.values():
            if self._folder(gpu).exists():
                try:
                    await self._start(gpu)
                    gpu.mode = Mode.PARALLEL
                except (MpsError, ValueError) as error:
                    self._failed(gpu, str(error))
        await self.step()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Leave daemons that have users, end the others."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for gpu in self._gpus.values():
            if gpu.daemon is not None:
                leave = gpu.daemon.let_go if self._users(gpu.uuid) else gpu.daemon.close
                await asyncio.to_thread(leave)

    def change(self, uuid: str, mode: Mode, *, restart: bool) -> None:
        """Give a GPU another mode: once its jobs are over, or by starting them again.

        Raises:
            NotFoundError: If there is no such GPU.
            InvalidRequestError: If the mode cannot be had here.
            UnavailableError: If the change cannot be kept on the disk.
        """
        gpu = self._gpus.get(uuid)
        if gpu is None:
            raise NotFoundError(f"there is no GPU {uuid}; there are: {', '.join(self._gpus)}")
        if uuid in self._serving and mode is not gpu.mode:
            raise InvalidRequestError(
                "models are served on this GPU: set its mode in the configuration, and start the "
                "node again"
            )
        if mode is Mode.PARALLEL:
            try:
                self._make(self._folder(gpu), (uuid,))
            except (MpsError, ValueError) as error:
                raise InvalidRequestError(f"parallel mode cannot be had: {error}") from None
        try:
            _write(self._file, {**self._changed, uuid: mode})
        except OSError as error:
            raise UnavailableError(f"{self._file} cannot be written: {error.strerror}") from None
        self._changed[uuid] = mode
        gpu.wanted, gpu.restart, gpu.trouble, gpu.retry_at = mode, restart, "", 0.0
        self._on_change()
        self._look.set()

    def closed(self, uuid: str) -> str:
        """Why nothing may start on a GPU now; empty if it may."""
        gpu = self._gpus.get(uuid)
        if gpu is None or (gpu.mode is gpu.wanted and not gpu.trouble):
            return ""
        if gpu.trouble:
            return gpu.trouble
        return f"it changes to {gpu.wanted} mode once nothing runs there"

    def is_parallel(self, uuid: str) -> bool:
        """Whether processes share a GPU through MPS."""
        gpu = self._gpus.get(uuid)
        return gpu is not None and gpu.mode is Mode.PARALLEL

    def environment(self, uuid: str, job: Job) -> dict[str, str]:
        """What a job on that GPU needs in its environment."""
        share = job.spec.share
        limits = ClientLimits(
            priority=job.priority,
            sm_fraction=min(1.0, max(_LEAST_SHARE, share)) if share else None,
            memory_bytes=job.spec.memory_bytes,
        )
        return self.client_environment(uuid, limits)

    def serve(self, uuid: str, limits: ClientLimits) -> dict[str, str]:
        """What a worker needs that serves models there; the GPU keeps its mode from now on."""
        self._serving.add(uuid)
        return self.client_environment(uuid, limits)

    def client_environment(self, uuid: str, limits: ClientLimits) -> dict[str, str]:
        """What a process on that GPU needs in its environment."""
        gpu = self._gpus.get(uuid)
        if gpu is None or gpu.daemon is None or gpu.mode is Mode.TURNS:
            return {}
        return gpu.daemon.client_environment(limits)

    def told(self) -> list[dict[str, Any]]:
        """What the API tells."""
        return [
            {
                "uuid": gpu.uuid,
                "mode": str(gpu.mode),
                "wanted": str(gpu.wanted),
                "reason": self.closed(gpu.uuid),
            }
            for gpu in self._gpus.values()
        ]

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # Not wait_for: it may take a cancellation for itself (Python 3.11).
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._look.wait()
            self._look.clear()
            try:
                await self.step()
            except Exception:  # a full disk, say: looked at again
                _log.exception("the modes of the GPUs could not be looked after")

    async def step(self) -> None:
        """Do what is to be done now."""
        async with self._stepping:
            for gpu in self._gpus.values():
                try:
                    if gpu.mode is not gpu.wanted:
                        await self._turn(gpu)
                    elif gpu.daemon is not None:
                        await self._look_after(gpu, gpu.daemon)
                except (MpsError, ValueError) as error:
                    self._failed(gpu, str(error))

    async def _turn(self, gpu: Gpu) -> None:
        """Change a GPU's mode, once nothing runs there."""
        if gpu.retry_at > asyncio.get_running_loop().time():
            return
        users = self._users(gpu.uuid)
        if users:
            if gpu.restart:
                for job in users:
                    await self._again(job, f"its GPU changes to {gpu.wanted} mode")
            return
        if gpu.wanted is Mode.PARALLEL:
            await self._start(gpu)
            if self._users(gpu.uuid):
                return  # one has come meanwhile, in turns: it is waited for
        elif gpu.daemon is not None:
            daemon, gpu.daemon = gpu.daemon, None
            await asyncio.to_thread(daemon.close)
        gpu.mode, gpu.restart, gpu.trouble = gpu.wanted, False, ""
        self._on_change()
        _log.info("GPU %s is in %s mode", gpu.uuid, gpu.mode)

    async def _start(self, gpu: Gpu) -> None:
        daemon = self._make(self._folder(gpu), (gpu.uuid,))
        await asyncio.to_thread(daemon.start)
        gpu.daemon = daemon

    async def _look_after(self, gpu: Gpu, daemon: MpsDaemon) -> None:
        """Restart a daemon that is not well. What ran under it has lost its contexts anyway."""
        if gpu.retry_at > asyncio.get_running_loop().time():
            return
        health = await asyncio.to_thread(daemon.check)
        if health.state is MpsState.RUNNING:
            gpu.trouble = ""
            return
        _log.error("the MPS daemon of GPU %s is %s: %s", gpu.uuid, health.state, health.reason)
        gpu.trouble = f"its MPS daemon is {health.state}: {health.reason}"
        for job in self._users(gpu.uuid):
            await self._again(job, gpu.trouble)
        await asyncio.to_thread(daemon.restart)
        gpu.trouble = ""

    def _failed(self, gpu: Gpu, reason: str) -> None:
        if gpu.wanted is Mode.TURNS and gpu.daemon is None:
            _log.warning("GPU %s: a daemon that was there cannot be ended: %s", gpu.uuid, reason)
            return
        gpu.trouble = f"{gpu.wanted} mode cannot be had: {reason}"
        gpu.retry_at = asyncio.get_running_loop().time() + _RETRY_SECONDS
        _log.error("GPU %s: %s", gpu.uuid, gpu.trouble)

    def _folder(self, gpu: Gpu) -> Path:
        return self._runtime / f"mps-{gpu.uuid[:12]}"


def _read(file: Path) -> dict[str, Mode]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Mode])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _log.error("the modes in %s cannot be read: %s", file, error)
        return {}


def _write(file: Path, modes: Mapping[str, Mode]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(modes))
    fresh.replace(file)
