"""The node's end of one worker process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.errors import ModelError
from treadle.serve.worker import messages
from treadle.serve.worker.arena import Arena, Progress
from treadle.serve.worker.messages import (
    Done,
    Failed,
    Load,
    Loaded,
    LoadFailed,
    Part,
    Run,
    Stop,
    Taken,
)

_log = logging.getLogger("treadle.worker")

# What the node knows and models need not.
_PRIVATE_VARIABLES = frozenset({"TREADLE_HTTP_TOKEN"})

SLOTS = 8
"""Batches that a worker can hold, running and next."""
_GRACE_SECONDS = 5.0

OnAnswer = Callable[[Done | Failed], None]
OnPart = Callable[[Part], None]
OnDeath = Callable[[ModelError, bool], None]
"""Called with the reason, and whether the batch had begun to run."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one batch: the arenas that its inputs and outputs lie in."""

    number: int
    inputs: Arena
    outputs: Arena

    def close(self) -> None:
        self.inputs.close()
        self.outputs.close()


class WorkerLane:
    """What runs one batch at a time: all models of a worker, or each where they run side by side.

    Whoever gives it batches keeps the figures.
    """

    __slots__ = ("busy_since", "in_flight", "streaming", "worker")

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.busy_since = 0.0
        """When it began with what it does now."""
        self.in_flight = 0
        """Batches that it holds, running and next."""
        self.streaming = False
        """Whether it runs what answers in parts, for who knows how long."""

    @property
    def usable(self) -> bool:
        """Whether it can be sent one more."""
        return self.worker.usable and self.worker.in_flight < SLOTS


class WorkerProcess:
    """A running worker: loads once, then runs batches, one after the other.

    A batch holds one of its slots. There are a few, so that the next batch can be there already
    when one ends.
    """

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        control: socket.socket,
        progress: Progress,
        slots: Sequence[Slot],
    ) -> None:
        self.name = name
        self.concurrent = False
        """Whether its models run side by side."""
        self._lanes: dict[str, WorkerLane] = {}
        self._free_slots = list(slots)
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[ModelError] = loop.create_future()
        self._process = process
        self._control = control
        self._progress = progress
        self._received = bytearray(messages.MAX_MESSAGE_BYTES)
        self._loaded: asyncio.Future[Loaded | LoadFailed] = loop.create_future()
        self._unsent: list[tuple[Run, OnAnswer, OnDeath]] = []
        self._running: dict[int, tuple[OnAnswer, OnDeath]] = {}
        self._on_part: dict[int, OnPart] = {}
        self._kill_reason: str | None = None
        self._tasks = (
            asyncio.create_task(self._watch_exit()),
            asyncio.create_task(self._forward_output()),
        )

    @classmethod
    async def start(cls, name: str, env: Mapping[str, str]) -> WorkerProcess:
        """Start the program with the node's environment, and ``env`` over it.

        Raises:
            OSError: If the system cannot start it.
            ValueError: If ``env`` holds what no environment can.
        """
        base = {k: v for k, v in os.environ.items() if k not in _PRIVATE_VARIABLES}
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.enter_context(ours)
            progress = Progress.create(SLOTS)
            undo.callback(progress.close)
            slots = []
            for number in range(SLOTS):
                slots.append(Slot(number, Arena.create("inputs"), Arena.create("outputs")))
                undo.callback(slots[-1].close)
            arena_fds = [fd for slot in slots for fd in (slot.inputs.fd, slot.outputs.fd)]
            inherited = (theirs.fileno(), progress.fd, *arena_fds)
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    # -P: modules in the folder that the node was started in are not ours.
                    *(sys.executable, "-P", "-m", "treadle.serve.worker", *map(str, inherited)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=base | {"PYTHONUNBUFFERED": "1"} | dict(env),
                    pass_fds=inherited,
                )
            undo.pop_all()
        ours.setblocking(False)
        worker = cls(name, process, ours, progress, slots)
        asyncio.get_running_loop().add_reader(ours.fileno(), worker._on_readable)
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    async def load(self, message: Load) -> Loaded | LoadFailed:
        """Have the worker load its models.

        Raises:
            ModelError: If the process ends before it has answered.
            ValueError: If the message cannot be sent.
        """
        data = messages.encode_load(message)
        self.concurrent = message.concurrent
        with contextlib.suppress(OSError):  # gone already: _watch_exit will say so
            self._control.send(data)
        return await self._loaded

    @property
    def in_flight(self) -> int:
        """Batches that hold a slot."""
        return SLOTS - len(self._free_slots)

    @property
    def begun(self) -> frozenset[int]:
        """The batches that it runs or ran last, one for each that may run at one time."""
        return self._progress.batches - {0}

    @property
    def usable(self) -> bool:
        """Whether it can still be sent a batch: it has not hung up."""
        return self._control.fileno() >= 0

    def lane(self, model: str) -> WorkerLane:
        """Where batches of a model run."""
        key = model if self.concurrent else ""
        if key not in self._lanes:
            self._lanes[key] = WorkerLane(self)
        return self._lanes[key]

    def take_slot(self) -> Slot:
        return self._free_slots.pop()

    def free_slot(self, slot: Slot) -> None:
        self._free_slots.append(slot)
        if self.exited.done():
            slot.close()

    def run(
        self,
        message: Run,
        on_answer: OnAnswer,
        on_death: OnDeath,
        on_part: OnPart | None = None,
    ) -> None:
        """Have a batch run whose inputs lie in its slot; one of the first two will be called.

        It is sent with the next ``flush``.
        """
        self._unsent.append((message, on_answer, on_death))
        if on_part is not None:
            self._on_part[message.batch] = on_part

    def tell(self, message: Taken | Stop) -> None:
        """Say something of a batch that answers in parts."""
        if not self.usable:
            return
        try:
            self._control.send(messages.encode(message))
        except BlockingIOError:
            self.kill("was ended: it does not hear what it is told")
        except OSError:
            pass  # it has gone: _watch_exit will say so

    def flush(self) -> None:
        """Send the batches that are to run, all in one message."""
        unsent, self._unsent = self._unsent, []
        if not unsent:
            return
        gone = self._send([run for run, _, _ in unsent])
        if gone is None:
            self._running.update((run.batch, (answer, death)) for run, answer, death in unsent)
            return
        for _, _, on_death in unsent:
            asyncio.get_running_loop().call_soon(on_death, gone, False)

    def _send(self, batches: Sequence[Run]) -> ModelError | None:
        """Send batches; the reason if they cannot be sent."""
        if self.exited.done():  # while the inputs were being copied
            return self.exited.result()
        try:
            self._control.send(messages.encode(batches))
        except OSError as error:  # it is gone, or so stuck that its socket is full
            self.kill(f"could not be sent a batch: {error}")
            return ModelError(f"worker {self.name!r} could not be sent a batch: {error}")
        return None

    def kill(self, reason: str) -> None:
        """End the process at once; its batch fails with ``reason``."""
        self._kill_reason = reason
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def hang_up(self) -> None:
        """Ask an idle process to end; by force if it has not done so after a grace period."""
        if self._control.fileno() < 0:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._control.fileno())
        self._control.close()
        late = loop.call_later(_GRACE_SECONDS, self.kill, "did not end when asked")
        self.exited.add_done_callback(lambda _: late.cancel())

    def _on_readable(self) -> bool:
        """Take in one message; False if there is none."""
        try:
            nbytes = self._receive()
        except BlockingIOError:
            return False
        except OSError:  # reset by a worker that died, or already closed here
            nbytes = 0
        if not nbytes:
            self.hang_up()
            return False
        message = messages.decode_from_worker(memoryview(self._received)[:nbytes])
        if isinstance(message, Loaded | LoadFailed):
            self._loaded.set_result(message)
            return True
        for answer in message:
            if isinstance(answer, Part):
                self._on_part[answer.batch](answer)
                continue
            on_answer, _ = self._running.pop(answer.batch)
            if self._on_part:
                self._on_part.pop(answer.batch, None)
            on_answer(answer)
        return True

    def _receive(self) -> int:
        try:
            return self._control.recv_into(self._received)
        except ConnectionResetError:
            # It died before it read all that it was sent. That is said once, before the answers
            # that it sent before.
            return self._control.recv_into(self._received)

    async def _watch_exit(self) -> None:
        code = await self._process.wait()
        error = ModelError(f"worker {self.name!r} {self._kill_reason or _describe_exit(code)}")
        while self._on_readable():
            pass  # an answer sent just before the end still counts
        self.hang_up()
        running, self._running = self._running, {}
        self._on_part.clear()
        begun = self.begun
        if not self._loaded.done():
            self._loaded.set_exception(error)
            self._loaded.exception()  # looked at: nobody may be waiting for it any more
        # Those before it had run, but their answers were lost.
        for batch, (_, on_death) in running.items():
            on_death(error, batch in begun)
        self._progress.close()
        self.exited.set_result(error)
        for slot in self._free_slots:  # the others are closed when they are given back
            slot.close()

    async def _forward_output(self) -> None:
        """Log what the worker prints, line by line."""
        stream = self._process.stdout
        assert stream is not None
        rest = b""
        while chunk := await stream.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _log.info("%s", line.decode(errors="replace"), extra={"worker": self.name})
            if len(rest) > 1 << 16:  # a line without an end must not grow for ever
                rest = b""
        if rest:
            _log.info("%s", rest.decode(errors="replace"), extra={"worker": self.name})


def _describe_exit(code: int) -> str:
    if code < 0:
        known = {number.value for number in signal.Signals}
        name = signal.Signals(-code).name if -code in known else f"signal {-code}"
        return f"was killed by {name}"
    return f"ended with exit code {code}"
