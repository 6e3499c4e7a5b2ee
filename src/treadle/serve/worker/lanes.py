"""A thread for each model of a worker on a GPU: their batches run side by side.

What one model launches may have to wait at the gate, for as long as more urgent work runs: in one
thread it would keep the others waiting with it.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterable

from treadle.serve.worker import messages
from treadle.serve.worker.arena import Progress
from treadle.serve.worker.host import Finish, Host
from treadle.serve.worker.messages import Answers, Failed, Run

_AHEAD = 2
"""Batches of a model that are on the device: one runs, the next is copied in."""


class Lanes:
    """The threads, and the one connection that they answer by."""

    def __init__(self, host: Host, progress: Progress, control: socket.socket) -> None:
        self._host, self._progress, self._control = host, progress, control
        self._sending = threading.Lock()
        self._lanes: dict[str, _Lane] = {}

    def run(self, batches: Iterable[Run]) -> None:
        """Hand batches to their models' threads."""
        for batch in batches:
            lane = self._lanes.get(batch.model)
            if lane is None:
                lane = self._lanes[batch.model] = _Lane(self, batch.model)
            lane.batches.put(batch)

    def begin(self, batch: Run) -> Finish:
        self._progress.begin(batch.batch)
        return self._host.begin(batch)

    def answer(self, finish: Finish, after: float) -> None:
        """End a batch and say how it went."""
        found = finish(after)
        answers = Answers()
        answers.add(messages.encode_answer(found))
        with self._sending:
            self._control.send(answers.take())
        if isinstance(found, Failed) and found.spoilt:
            sys.stdout.flush()
            os._exit(1)  # it is started anew; what it was sent and has not begun runs there


class _Lane:
    """One model's threads: one begins batches, one waits for their ends."""

    def __init__(self, lanes: Lanes, name: str) -> None:
        self.batches: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._lanes = lanes
        self._begun: queue.SimpleQueue[Finish] = queue.SimpleQueue()
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._begin_all, name=f"{name} begins", daemon=True).start()
        threading.Thread(target=self._end_all, name=f"{name} ends", daemon=True).start()

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
            except (BrokenPipeError, ConnectionResetError):
                return  # the node has gone: the main thread ends the process
            ended = time.perf_counter()
            self._room.release()
