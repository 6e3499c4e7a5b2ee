"""Runs the queue of one device: takes batches out, gives them to workers, hands answers back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from itertools import count
from typing import cast

from treadle.clock import Clock
from treadle.errors import AbandonedError, DeadlineError, ModelError, RequestError, UnavailableError
from treadle.schedule import Batch, BatchRule, Capacity, Entry, RequestQueue
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ServedModel
from treadle.serve.running import Outputs, RunningBatch, RunningStream
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.worker.messages import Done, Failed
from treadle.serve.worker.process import SLOTS, WorkerLane
from treadle.types import Priority

_AHEAD_SECONDS = 0.001
_AHEAD_ON_GPU_SECONDS = 0.02


class Engine:
    """Owns every accepted request of one device until it is answered.

    All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        queue: RequestQueue,
        capacity: Capacity,
        models: Mapping[str, ServedModel],
        rules: Mapping[str, BatchRule],
        clock: Clock,
        metrics: ServeMetrics,
    ) -> None:
        self._queue = queue
        self._capacity = capacity
        self._models = models
        self._rules = rules
        self._clock = clock
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._now = clock.now()
        """One time for all that one look at the queue decides: it must not contradict itself."""
        self._dispatch_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._open: set[Ticket] = set()
        self._running: set[RunningBatch] = set()
        self._held: dict[WorkerLane, tuple[Priority, float]] = {}
        """Lanes that hold a share of the device, the class that it counts as and the share."""
        self._closed: RequestError | None = None
        self._batch_numbers = count(1)

    @property
    def open_requests(self) -> int:
        """Requests accepted and not yet answered."""
        return len(self._open)

    def waiting(self, model: str) -> int:
        """Requests that wait for ``model``."""
        return self._queue.waiting(model)

    def submit(self, ticket: Ticket) -> None:
        """Accept a request; its ``answer`` will be set, whatever happens.

        Raises:
            UnavailableError: If the model's queue is full.
            DeadlineError: If the model is known to take longer than the deadline allows.
        """
        model = ticket.served
        waiting = self._queue.waiting(ticket.model)
        if waiting >= model.config.queue_limit:
            raise UnavailableError(
                f"the queue of model '{ticket.model}' is full "
                f"({waiting} of {model.config.queue_limit} requests wait)",
                retry_after_seconds=self._backlog_seconds(model, waiting),
            )
        latency = model.latencies[ticket.bucket]
        expected = latency.estimate(ticket.rows, ticket.arrived) or 0.0
        late = ticket.due if model.config.when_late == "refuse" else ticket.deadline
        ticket.latest_start = late - expected
        if ticket.latest_start < ticket.arrived:
            raise DeadlineError(
                f"the request times out in {late - ticket.arrived:.3g} s and model "
                f"'{ticket.model}' takes {expected:.3g} s"
            )
        self._rules[ticket.model].arrived(ticket)
        self._open.add(ticket)
        self._queue.push(ticket)
        self.wake()

    def abandon(self, ticket: Ticket) -> None:
        """Drop a request whose caller has gone. If it already runs, its answer is discarded."""
        self._queue.remove(ticket)
        self._fail(ticket, AbandonedError("the caller went away"))

    def wake(self) -> None:
        """Look for work to start, once what is happening now has happened.

        Requests that arrive in one turn of the event loop so find each other in a batch.
        """
        if not self._dispatch_planned:
            self._dispatch_planned = True
            self._loop.call_soon(self._dispatch)

    def fail_waiting(self, model: str, error: RequestError) -> None:
        """Answer every request that waits for ``model`` with an error."""
        for ticket in [t for t in self._open if t.model == model and t.waiting]:
            self._queue.remove(ticket)
            self._fail(ticket, error)

    def fail_all(self, error: RequestError) -> None:
        """Answer every request that waits, or comes to wait again, with an error."""
        self._closed = error
        for model in self._models:
            self.fail_waiting(model, error)

    async def drained(self, model: str | None = None) -> None:
        """Wait until every accepted request (of ``model``, if given) is answered."""
        while pending := [t.answer for t in self._open if model in (None, t.model)]:
            await asyncio.wait(pending)

    def check_integrity(self) -> None:
        """Compare the books of queue, capacity and requests.

        Raises:
            AssertionError: If they disagree.
        """
        self._queue.check_integrity()
        waiting = sum(self._queue.waiting(name) for name in self._models)
        running = sum(len(running.tickets) for running in self._running)
        assert waiting + running >= len(self._open), "a request is neither waiting nor running"
        assert bool(self._running) == (self._capacity.held > 0)

    def _dispatch(self) -> None:
        self._dispatch_planned = False
        now = self._now = self._clock.now()
        for ticket in cast(list[Ticket], self._queue.expire(now)):
            self._fail(ticket, DeadlineError("Request timeout expired"))
        sent_to = set()
        while batch := self._queue.take(now, ready=self._ready, fits=self._fits):
            sent_to.add(self._start(batch, now).worker)
        for worker in sent_to:
            worker.flush()
        self._plan_timer(now)

    def _ready(self, name: str) -> bool:
        """Whether a batch could be taken: by an idle lane, or, if it will be full, a busy one."""
        model = self._models[name]
        full = self._queue.waiting(name) >= model.most_rows
        return self._idle_lane(model) is not None or (
            full and self._lane_to_send_ahead(model) is not None
        )

    def _fits(self, entry: Entry) -> bool:
        model = self._models[entry.model]
        if self._idle_lane(model) is None:
            return True  # it is sent ahead, to a lane that holds its share already
        return self._capacity.fits(entry.priority, model.config.share)

    def _idle_lane(self, model: ServedModel) -> WorkerLane | None:
        for lane in model.lanes:
            if lane.in_flight == 0 and lane.usable:
                return lane
        return None

    def _lane_to_send_ahead(self, model: ServedModel) -> WorkerLane | None:
        """A lane that is about to end a batch, and can be sent the next meanwhile.

        For short batches the way there and back takes longer than the run: a worker would idle.
        On a GPU one more may be longer: its inputs are copied while the one before it runs.
        Only full ones are sent ahead, others gain more from company; and only to a worker that
        has just begun, since what is sent can no longer be overtaken.
        """
        if model.streaming:
            return None  # what is sent ahead should not stand behind what has no known end
        seconds = model.longest_run(model.most_rows, self._now)
        if seconds is None or seconds > (
            _AHEAD_ON_GPU_SECONDS if model.on_gpu else _AHEAD_SECONDS / 2
        ):
            return None
        most = SLOTS if seconds == 0 else min(SLOTS, int(_AHEAD_SECONDS / seconds))
        for lane in model.lanes:
            if lane.streaming:
                continue
            if model.on_gpu and lane.in_flight == 1 and lane.usable:
                return lane
            room = lane.in_flight < most and lane.usable
            if room and self._now - lane.busy_since < _AHEAD_SECONDS:
                return lane
        return None

    def _plan_timer(self, now: float) -> None:
        """Wake at the queue's next event. A timer that fires too early only looks again."""
        when = self._queue.next_event(now)
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
            self._timer = None
        if when < math.inf:
            self._timer_at = when
            self._timer = self._loop.call_later(when - now, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._dispatch()

    def _start(self, batch: Batch, now: float) -> WorkerLane:
        model = self._models[batch.model]
        tickets = cast(tuple[Ticket, ...], batch.entries)
        for ticket in tickets:
            ticket.started = now
        lane = self._idle_lane(model) or self._lane_to_send_ahead(model)
        assert lane is not None, "a batch was taken for a model that was not ready"
        kind = RunningStream if model.streaming else RunningBatch
        running = kind(model, batch, tickets, lane, now, self._loop, self._ended)
        self._running.add(running)
        if lane not in self._held:
            lane.busy_since = now
            self._held[lane] = (_seen_as(running), model.config.share)
            self._capacity.hold(*self._held[lane])
        running.start(next(self._batch_numbers))
        return lane

    def _ended(
        self, running: RunningBatch, answer: Done | Failed | ModelError | None, outputs: Outputs
    ) -> None:
        now, lane = self._clock.now(), running.lane
        self._running.discard(running)
        if lane.in_flight == 0:
            self._capacity.release(*self._held.pop(lane))
        if running.batch.aged:
            self._queue.aged_finished(now, now - running.started)
        if isinstance(answer, Done):
            self._succeed(running, answer, outputs, now)
        elif answer is None:
            self._run_again(running)
        else:
            self._failed(running, answer)
        lane.busy_since = now
        running.group.batch_ended(running.worker)
        self.wake()

    def _succeed(self, running: RunningBatch, answer: Done, outputs: Outputs, now: float) -> None:
        model = running.model
        seconds = answer.first_part_seconds
        if seconds is None:
            seconds = answer.input_seconds + answer.run_seconds + answer.output_seconds
        model.latencies[running.bucket].observe(running.rows, seconds, now)
        model.standing.ran(running.rows)
        if answer.fitted_rows:
            model.memory_ran_out(answer.fitted_rows, now)
        else:
            model.try_more(now)
        model.statistics.executed(
            requests=len(running.tickets),
            rows=running.rows,
            input_seconds=answer.input_seconds,
            run_seconds=answer.run_seconds,
            output_seconds=answer.output_seconds,
        )
        began = max(running.started, running.lane.busy_since)
        self._metrics.batch(model.name, model.device, running.rows, began, now, model.config.share)
        for ticket, tensors in zip(running.tickets, outputs, strict=True):
            self._open.discard(ticket)
            if not ticket.answer.done():
                ticket.answer.set_result(
                    Answer(
                        outputs=tensors,
                        queue_seconds=ticket.started - ticket.arrived,
                        run_seconds=answer.run_seconds,
                    )
                )

    def _failed(self, running: RunningBatch, answer: Failed | ModelError) -> None:
        if isinstance(answer, Failed) and len(running.tickets) > 1:
            # One of them may have spoilt it for the others: each runs again, by itself.
            for ticket in running.tickets:
                ticket.batch_key = object()
            self._run_again(running)
            return
        reason = answer.reason if isinstance(answer, Failed) else answer
        error = ModelError(f"model '{running.model.name}' failed: {reason}")
        for ticket in running.tickets:
            self._fail(ticket, error)

    def _run_again(self, running: RunningBatch) -> None:
        """Back into the queue, where their age puts them first."""
        model, refusal = running.model, self._closed
        if refusal is None and model.group is None:
            refusal = UnavailableError(f"model '{model.name}' is not loaded any more")
        elif refusal is None and running.signature != (model.inputs, model.outputs):
            refusal = UnavailableError(
                f"model '{model.name}' has changed while the request ran; send it anew"
            )
        for ticket in running.tickets:
            if refusal is not None:
                self._fail(ticket, refusal)
            elif not ticket.answer.done():
                self._queue.push(ticket)

    def _fail(self, ticket: Ticket, error: RequestError) -> None:
        self._open.discard(ticket)
        if not ticket.answer.done():
            ticket.answer.set_exception(error)

    def _backlog_seconds(self, model: ServedModel, waiting: int) -> float:
        """A guess at when a full queue will have room again."""
        size = model.config.max_batch
        per_batch = model.longest_run(size, self._clock.now()) or 0.1
        return per_batch * max(1.0, waiting / size / 2)


def _seen_as(running: RunningBatch) -> Priority:
    """The class that a running batch counts as: its worker's, which the device goes by.

    A request that was raised above its model counts as what it was raised to, and one that was
    started out of turn as CRITICAL, so that nothing overtakes them again.
    """
    if running.batch.aged:
        return Priority.CRITICAL
    return min(running.model.priority, running.tickets[0].priority)
