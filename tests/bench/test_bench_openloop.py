from __future__ import annotations

import asyncio

import numpy as np
import pytest

from treadle.bench.arrivals import Schedule
from treadle.bench.openloop import LEAD_SECONDS, NO_ANSWER, Recording, UnwantedError, drive
from treadle.clock import ManualClock


class ManualTimer:
    """Virtual time: waiting moves it on, and lets what was started take its turn."""

    def __init__(self, late_by: float = 0.0) -> None:
        self._clock = ManualClock(100.0)
        self._late_by = late_by

    def now(self) -> float:
        return self._clock.now()

    async def until(self, when: float) -> None:
        await asyncio.sleep(0)
        self._clock.advance(max(0.0, when - self._clock.now()) + self._late_by)

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)


def schedule_of(*times: float) -> Schedule:
    return Schedule(
        models=("m",),
        seconds=10.0,
        times=np.array(times),
        model_index=np.zeros(len(times), np.intp),
    )


async def test_every_request_is_sent_at_its_time() -> None:
    timer, sent = ManualTimer(), list[float]()

    async def send(model: str) -> int:
        sent.append(timer.now() - 100.0 - LEAD_SECONDS)
        return 200

    recording = await drive(schedule_of(0.5, 1.0, 4.0), send, timer, drain_seconds=1.0)
    assert sent == pytest.approx([0.5, 1.0, 4.0])
    assert recording.status.tolist() == [200, 200, 200]
    assert recording.send_lags == pytest.approx([0, 0, 0])


async def test_an_answer_that_does_not_come_holds_no_other_request_back() -> None:
    timer, never = ManualTimer(), asyncio.Event()
    answers = iter([never.wait, None, None])

    async def send(model: str) -> int:
        wait = next(answers)
        if wait is not None:
            await wait()
        return 200

    recording = await drive(schedule_of(0.5, 1.0, 4.0), send, timer, drain_seconds=0.0)
    assert recording.status.tolist() == [NO_ANSWER, 200, 200]
    assert np.isnan(recording.latencies[0])
    assert recording.latencies[1:] == pytest.approx([0, 0])


async def test_latency_counts_from_when_a_request_was_due() -> None:
    timer = ManualTimer()

    async def send(model: str) -> int:
        timer.pass_time(2.0)  # the whole generator stands still
        return 200

    recording = await drive(schedule_of(1.0, 1.5, 9.0), send, timer, drain_seconds=1.0)
    assert recording.latencies == pytest.approx([2.0, 3.5, 2.0])
    assert recording.send_lags == pytest.approx([0, 1.5, 0])


async def test_a_late_generator_is_found_out() -> None:
    async def send(model: str) -> int:
        return 200

    recording = await drive(schedule_of(1.0, 5.0), send, ManualTimer(late_by=0.25), 1.0)
    assert recording.send_lags == pytest.approx([0.25, 0.25])
    assert recording.latencies == pytest.approx([0.25, 0.25])


async def test_a_broken_connection_is_no_answer() -> None:
    async def send(model: str) -> int:
        raise ConnectionResetError

    recording = await drive(schedule_of(1.0), send, ManualTimer(), drain_seconds=1.0)
    assert recording.status.tolist() == [NO_ANSWER]


async def test_when_it_is_cancelled_so_is_what_it_sent() -> None:
    ended, sent = list[str](), asyncio.Event()

    async def send(model: str) -> int:
        sent.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(model)
        return 200

    driving = asyncio.create_task(drive(schedule_of(1.0), send, ManualTimer(), 60.0))
    await sent.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert ended == ["m"]


async def test_an_answer_that_is_not_wanted_is_kept_with_its_reason() -> None:
    async def send(model: str) -> int:
        raise UnwantedError(503, "the queue is full")

    recording = await drive(schedule_of(1.0, 2.0), send, ManualTimer(), drain_seconds=1.0)
    assert recording.status.tolist() == [503, 503]
    assert recording.latencies == pytest.approx([0, 0])
    assert recording.reasons == {0: "the queue is full", 1: "the queue is full"}


async def test_a_schedule_may_begin_at_a_time_that_others_know_too() -> None:
    timer, sent = ManualTimer(), list[float]()

    async def send(model: str) -> int:
        sent.append(timer.now())
        return 200

    await drive(schedule_of(1.0, 2.0), send, timer, 1.0, zero=150.0)
    assert sent == pytest.approx([151, 152])


async def test_what_has_become_hopeless_is_given_up() -> None:
    async def send(model: str) -> int:
        await asyncio.Event().wait()
        return 200

    def hopeless(recording: Recording, now: float) -> bool:
        return bool(np.isfinite(recording.sent[0]))

    recording = await drive(schedule_of(1.0, 5.0), send, ManualTimer(), 60.0, hopeless=hopeless)
    assert recording.stopped is not None
    assert recording.status.tolist() == [NO_ANSWER, NO_ANSWER]


async def test_an_error_of_the_sender_itself_is_not_hidden() -> None:
    def hopeless(recording: Recording, now: float) -> bool:
        raise ZeroDivisionError

    async def send(model: str) -> int:
        return 200

    with pytest.raises(ZeroDivisionError):
        await drive(schedule_of(1.0), send, ManualTimer(), 1.0, hopeless=hopeless)
