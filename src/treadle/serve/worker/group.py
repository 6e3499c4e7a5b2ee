"""Keeps the workers of one name running: starts them, restarts them, lets them go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Set

from treadle.errors import ModelError
from treadle.serve.worker.messages import Load, Loaded, LoadFailed, ModelSetup
from treadle.serve.worker.process import WorkerProcess

_log = logging.getLogger("treadle.worker")

_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 30.0
_STABLE_SECONDS = 60.0
_LOAD_ATTEMPTS = 3


class WorkerGroup:
    """Identical workers that host the same models.

    What a group hosts never changes: another set of models is another group, started beside
    the old one and swapped in when it is ready, so that loading never stalls what runs.
    """

    def __init__(
        self,
        name: str,
        setups: tuple[ModelSetup, ...],
        *,
        replicas: int,
        env: Mapping[str, str],
        nice: int,
        on_idle: Callable[[], None],
        on_lost: Callable[[WorkerGroup, str], None],
    ) -> None:
        self.name = name
        self.models = tuple(setup.name for setup in setups)
        self.restarts = 0
        self._load = Load(setups, nice)
        self._env = env
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._live: set[WorkerProcess] = set()
        self._loading: set[WorkerProcess] = set()
        self._retired = asyncio.Event()
        self._first_answers = [asyncio.get_running_loop().create_future() for _ in range(replicas)]
        self._keepers = [asyncio.create_task(self._keep(first)) for first in self._first_answers]

    async def started(self) -> Loaded | LoadFailed:
        """Wait until every replica has loaded; the first failure, if one has not."""
        await asyncio.wait(self._first_answers)  # not gather: giving up must not cancel them
        answers: list[Loaded | LoadFailed] = [first.result() for first in self._first_answers]
        return next((a for a in answers if isinstance(a, LoadFailed)), answers[0])

    @property
    def workers(self) -> Set[WorkerProcess]:
        """The processes that have loaded and live, idle or busy."""
        return self._live

    @property
    def alive(self) -> bool:
        """Whether at least one worker has loaded and lives."""
        return bool(self._live)

    def batch_ended(self, worker: WorkerProcess) -> None:
        """Say that a worker's slot is free again."""
        if self._retired.is_set():
            self._let_go(worker)
        else:
            self._on_idle()

    def retire(self) -> None:
        """End every worker once it is idle. New batches must go elsewhere from now on."""
        self._retired.set()
        for worker in self._live:
            self._let_go(worker)
        for worker in self._loading:
            worker.kill("is not needed any more")

    async def ended(self) -> None:
        """Wait until every worker of a retired group has ended."""
        await asyncio.gather(*self._keepers)

    def kill(self, reason: str) -> None:
        """End every worker at once, whatever it is doing."""
        self.retire()
        for worker in self._live:
            worker.kill(reason)

    async def _keep(self, first_answer: asyncio.Future[Loaded | LoadFailed]) -> None:
        """Keep one replica running until the group retires or its models cannot load."""
        loop, failures = asyncio.get_running_loop(), 0
        while not self._retired.is_set():
            started = loop.time()
            answer: Loaded | LoadFailed | ModelError
            try:
                worker = await WorkerProcess.start(self.name, self._env)
            except ValueError as error:  # an environment that cannot be
                answer = LoadFailed(self.models[0], f"its worker cannot be started: {error}")
            except OSError as error:  # too many processes or open files
                answer = ModelError(f"worker {self.name!r} cannot be started: {error}")
            else:
                answer = await self._load_into(worker)
            if isinstance(answer, Loaded):
                await self._serve(worker, first_answer, answer)
            elif isinstance(answer, LoadFailed) or (
                not first_answer.done() and failures + 1 >= _LOAD_ATTEMPTS
            ):
                self._give_up(first_answer, answer)
                return
            failures = 1 if loop.time() - started > _STABLE_SECONDS else failures + 1
            if not self._retired.is_set():
                await self._pause(failures)
        if not first_answer.done():
            first_answer.set_result(LoadFailed(self.models[0], "unloaded while loading"))

    async def _load_into(self, worker: WorkerProcess) -> Loaded | LoadFailed | ModelError:
        """Have a new worker load; anything but Loaded means that it has ended."""
        answer: Loaded | LoadFailed
        self._loading.add(worker)
        if self._retired.is_set():
            worker.kill("is not needed any more")
        try:
            answer = await worker.load(self._load)
        except ModelError as error:
            return error
        except ValueError as error:
            answer = LoadFailed(self.models[0], str(error))
        finally:
            self._loading.discard(worker)
        if isinstance(answer, LoadFailed):
            worker.hang_up()
            await worker.exited
        return answer

    async def _serve(
        self,
        worker: WorkerProcess,
        first_answer: asyncio.Future[Loaded | LoadFailed],
        answer: Loaded,
    ) -> None:
        """Let a worker that has loaded take batches until it ends."""
        self._live.add(worker)
        if self._retired.is_set():
            worker.hang_up()
        if first_answer.done():
            self._on_idle()
        else:
            first_answer.set_result(answer)
        error = await worker.exited
        self._live.discard(worker)
        if not self._retired.is_set():
            _log.error("%s; it will be restarted", error, extra={"worker": self.name})

    def _let_go(self, worker: WorkerProcess) -> None:
        if worker.in_flight == 0:
            worker.hang_up()

    def _give_up(
        self, first_answer: asyncio.Future[Loaded | LoadFailed], answer: LoadFailed | ModelError
    ) -> None:
        if isinstance(answer, ModelError):
            answer = LoadFailed(self.models[0], f"{answer} while loading")
        if not first_answer.done():
            first_answer.set_result(answer)
        elif self._live or self._loading:
            _log.error("not restarted: %s", answer.reason, extra={"worker": self.name})
        else:
            self._on_lost(self, answer.reason)
            self.retire()

    async def _pause(self, failures: int) -> None:
        """Wait before the next start: longer after each failure, cut short by retirement."""
        self.restarts += 1
        delay = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** (failures - 1))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._retired.wait(), delay)
