"""Threads that run batches while the worker goes on hearing what the node says.

On a GPU each model has its own, and their batches run side by side. What one model launches may
have to wait at the gate, for as long as more urgent work runs: in one thread it would keep the
others waiting with it. On the CPU, where models answer in parts, one thread is for all.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable

from treadle.serve.worker import messages
from treadle.serve.worker.arena import Progress
from treadle.serve.worker.host import Finish, Host
from treadle.serve.worker.messages import Answers, Failed, Part, Run, Stop, Taken
from treadle.serve.worker.streams import Stream

_AHEAD = 2
"""Batches of a model that are on the device: one runs, the next is copied in."""


class Lanes:
    """The threads, and the one connection that they answer by."""

    def __init__(
        self,
        host: Host,
        progress: Progress,
        control: socket.socket,
        *,
        side_by_side: bool = True,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """Begin without any thread.

        Args:
            host: The models.
            progress: Where the node reads which batches have begun.
            control: The connection to the node.
            side_by_side: Whether each model has threads of its own; else one after the other.
            end: Ends the process with an exit code: half a lane would answer nothing.
        """
        self.end = end
        self._host, self._progress, self._control = host, progress, control
        self._side_by_side = side_by_side
        self._sending = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._streams: dict[int, Stream] = {}
        """Answers in parts that are on their way or will be, by batch."""

    def run(self, batches: Iterable[Run]) -> None:
        """Hand batches to their models' threads."""
        for batch in batches:
            name = batch.model if self._side_by_side else "batches"
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane(self, name)
            if self._host.answers_in_parts(batch.model):
                self._streams[batch.batch] = Stream()
            lane.batches.put(batch)

    def tell(self, message: Taken | Stop) -> None:
        """Pass on what the node says of an answer in parts, unless that has ended."""
        stream = self._streams.get(message.batch)
        if stream is not None:
            stream.tell(message)

    def begin(self, batch: Run) -> Finish:
        self._progress.begin(batch.batch, batch.slot)  # others run at the same time
        stream = self._streams.get(batch.batch)
        if stream is None:
            return self._host.begin(batch)
        answer = self._host.run_in_parts(batch, stream, self._send_part)
        del self._streams[batch.batch]
        return lambda after: answer

    def answer(self, finish: Finish, after: float) -> None:
        """End a batch and say how it went."""
        found = finish(after)
        answers = Answers()
        answers.add(messages.encode_answer(found))
        with self._sending:
            self._control.send(answers.take())
        if isinstance(found, Failed) and found.spoilt:
            sys.stdout.flush()
            self.end(1)  # it is started anew; what it was sent and has not begun runs there

    def _send_part(self, part: Part) -> None:
        data = messages.encode([part])
        # If the node has gone, the main thread ends the process.
        with self._sending, contextlib.suppress(OSError):
            self._control.send(data)


class _Lane:
    """One model's threads: one begins batches, one waits for their ends."""

    def __init__(self, lanes: Lanes, name: str) -> None:
        self.batches: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._lanes = lanes
        self._begun: queue.SimpleQueue[Finish] = queue.SimpleQueue()
        self._room = threading.Semaphore(_AHEAD)
        for work, does in ((self._begin_all, "begins"), (self._end_all, "ends")):
            threading.Thread(
                target=self._or_end, args=(work,), name=f"{name} {does}", daemon=True
            ).start()

    def _begin_all(self) -> None:
        while True:
            batch = self.batches.get()
            self._room.acquire()
            self._begun.put(self._lanes.begin(batch))

    def _end_all(self) -> None:
        ended = 0.0
        while True:
            finish = self._begun.get()
            try:
                self._lanes.answer(finish, ended)
            except OSError:
                return  # the node has gone: the main thread ends the process
            ended = time.perf_counter()
            self._room.release()

    def _or_end(self, work: Callable[[], None]) -> None:
        """Work; if that fails, the process ends. A model may do anything, even exit."""
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stdout.flush()
            self._lanes.end(1)
