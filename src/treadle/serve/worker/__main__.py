"""The worker program: hosts models, runs their batches, ends when its node does.

On the CPU batches run one at a time, in a thread of their own if models answer in parts; on a GPU
each model has a thread of its own.

It is started by the node with inherited descriptors: a control socket, the place for its progress,
and for each slot the arena that inputs lie in and the arena that outputs go to.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Sequence

from treadle.child import become_child
from treadle.serve.worker import messages
from treadle.serve.worker.arena import Arena, Progress
from treadle.serve.worker.host import Host
from treadle.serve.worker.lanes import Lanes
from treadle.serve.worker.messages import Answers, Load, LoadFailed, Run, Stop, Taken

_TOGETHER_SECONDS = 0.0001
"""Answers are sent together if the first is not kept back for longer than about this."""


def _run_all(
    host: Host, batches: Sequence[Run], progress: Progress, control: socket.socket
) -> None:
    """Run batches one after the other; short ones are answered together."""
    answers = Answers()
    since = time.perf_counter()
    for batch in batches:
        progress.begin(batch.batch)
        answer = messages.encode_answer(host.run(batch))
        if not answers.have_room_for(answer):
            control.send(answers.take())
        answers.add(answer)
        if time.perf_counter() - since > _TOGETHER_SECONDS:
            control.send(answers.take())
            since = time.perf_counter()
    if answers:
        control.send(answers.take())


def main() -> int:
    """Serve the node on the descriptors given as arguments until it hangs up."""
    become_child()
    control_fd, progress_fd, *arena_fds = (int(argument) for argument in sys.argv[1:])
    control = socket.socket(fileno=control_fd)
    progress = Progress(progress_fd)
    arenas = [Arena(fd) for fd in arena_fds]
    host = Host(list(zip(arenas[::2], arenas[1::2], strict=True)))
    lanes: Lanes | None = None
    while data := control.recv(messages.MAX_MESSAGE_BYTES):
        message = messages.decode_to_worker(data)
        if isinstance(message, Taken | Stop):
            assert lanes is not None, "only answers in parts are spoken of"
            lanes.tell(message)
            continue
        if not isinstance(message, Load):
            if lanes is None:
                _run_all(host, message, progress, control)
            else:
                lanes.run(message)
            continue
        answer = host.load(message)
        if message.concurrent or message.streaming:
            lanes = Lanes(host, progress, control, side_by_side=message.concurrent)
        control.send(messages.encode(answer))
        if isinstance(answer, LoadFailed):
            return 1
        gc.collect()
        gc.freeze()  # what loading made stays: later collections need not look at it
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # the node has gone
    sys.stdout.flush()
    os._exit(code)  # threads that a model left behind must not keep the memory
