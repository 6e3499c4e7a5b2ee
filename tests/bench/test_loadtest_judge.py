from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from treadle.bench.arrivals import Schedule, constant, draw_arrivals
from treadle.bench.loadtest.figures import lag_limit, run_of
from treadle.bench.loadtest.judge import judge_of, misses_allowed
from treadle.bench.loadtest.results import LoadRun, Verdict
from treadle.bench.loadtest.spread import merge
from treadle.bench.openloop import NO_ANSWER, TIMED_OUT, WRONG, Recording

NAN = float("nan")


def one_model(*times: float, seconds: float = 10.0) -> Schedule:
    return Schedule(
        models=("m",),
        seconds=seconds,
        times=np.array(times),
        model_index=np.zeros(len(times), np.intp),
    )


def answered(
    schedule: Schedule, seconds: float = 0.01, lag: float = 0.0, status: int = 200
) -> Recording:
    """Every request so, unless a test changes it."""
    recording = Recording.empty(schedule)
    recording.sent[:] = schedule.times + lag
    recording.answered[:] = schedule.times + seconds
    recording.status[:] = status
    return recording


def run(
    recording: Recording, *objectives: float | None, warm_up: float = 0.0, whole: bool = True
) -> LoadRun:
    rate = len(recording.schedule) / recording.schedule.seconds
    return run_of(recording, rate, objectives, warm_up, whole=whole)


@pytest.mark.parametrize(
    ("offered", "allowed"), [(0, 0), (1, 0), (99, 0), (100, 1), (199, 1), (200, 2), (1000, 10)]
)
def test_one_in_a_hundred_may_miss(offered: int, allowed: int) -> None:
    assert misses_allowed(offered) == allowed


def test_whatever_is_not_answered_right_and_in_time_is_a_miss() -> None:
    recording = answered(one_model(*np.arange(8.0)))
    recording.answered[1] += 5.0  # late
    for number, status, reason in (
        (2, 503, "503: the queue is full"),
        (3, 429, "429: slower"),
        (4, 500, "500: out of order"),
        (5, TIMED_OUT, "timed out"),
        (6, WRONG, "wrong answer: outputs z"),
    ):
        recording.status[number], recording.reasons[number] = status, reason
    recording.status[7], recording.answered[7] = NO_ANSWER, NAN
    result = run(recording, 0.1)
    figures = result.models["m"]
    assert (figures.offered, figures.answered) == (8, 2)
    assert figures.refused == {"503: the queue is full": 1, "429: slower": 1}
    assert figures.failed == {
        "500: out of order": 1,
        "timed out": 1,
        "wrong answer: outputs z": 1,
        "no answer": 1,
    }
    assert figures.within_fraction == pytest.approx(1 / 8)
    assert figures.goodput_per_second == pytest.approx(1 / 10)
    assert figures.max_seconds == pytest.approx(5.01)
    assert result.verdict is Verdict.MISSED


def test_without_an_objective_what_is_answered_is_good() -> None:
    recording = answered(one_model(0.0, 1.0), seconds=60.0)
    recording.status[1] = 503
    result = run(recording, None)
    assert result.verdict is None
    assert result.models["m"].within_fraction is None
    assert result.models["m"].goodput_per_second == pytest.approx(1 / 10)


def two_models() -> Recording:
    return answered(draw_arrivals({"a": 100.0, "b": 10.0}, 12.0, 1, constant))


def test_every_model_has_to_hold_its_own_objective() -> None:
    recording = two_models()
    assert run(recording, 0.1, 0.1).verdict is Verdict.HELD
    recording.answered[recording.schedule.model_index == 1] += 1.0
    result = run(recording, 0.1, 0.1)
    assert result.verdict is Verdict.MISSED
    assert [result.models[name].within_fraction for name in "ab"] == [1.0, 0.0]
    assert run(recording, 0.1, None).verdict is Verdict.HELD


def test_the_warm_up_is_not_counted() -> None:
    recording = two_models()
    recording.status[recording.schedule.times < 2.0] = 500
    result = run(recording, 0.1, None, warm_up=2.0)
    assert result.verdict is Verdict.HELD
    assert (result.seconds, result.total.offered, result.total.failed) == (10.0, 1100, {})
    assert {s.missed for s in result.series if s.second < 2 and s.model == "a"} == {100}


def test_each_second_and_model_is_in_the_series() -> None:
    series = run(two_models(), 0.1, None).series
    assert len(series) == 24
    assert {(s.model, s.offered, s.answered, s.missed) for s in series} == {
        ("a", 100, 100, 0),
        ("b", 10, 10, 0),
    }
    assert run(two_models(), 0.1, None, whole=False).series == ()


def test_the_p99_has_an_interval_where_there_are_seconds_enough() -> None:
    figures = run(two_models(), 0.1, None).models["a"]
    assert figures.p99_low_seconds == pytest.approx(figures.p99_seconds)
    few = answered(draw_arrivals({"m": 100.0}, 3.0, 1, constant))
    assert run(few, 0.1).models["m"].p99_low_seconds is None


@pytest.mark.parametrize("objective", [0.1, None])
def test_a_late_generator_makes_a_run_invalid_whatever_it_measured(
    objective: float | None,
) -> None:
    result = run(answered(two_models().schedule, lag=0.03), objective, objective)
    assert (result.verdict, result.valid) == (Verdict.INVALID, False)
    assert "the generator itself was late: 30.0 ms" in result.warnings[0]


def test_what_was_never_sent_is_late() -> None:
    recording = replace(two_models(), stopped=3.0)
    recording.sent[recording.schedule.times > 1.0] = NAN
    assert run(recording, 0.1, None).verdict is Verdict.INVALID


def test_a_run_without_requests_is_invalid() -> None:
    result = run(answered(one_model()), 0.1)
    assert (result.verdict, result.valid) == (Verdict.INVALID, False)
    assert "no request was due" in result.warnings[0]


def test_few_requests_are_warned_of() -> None:
    assert "1 requests are few for a P99" in run(answered(one_model(1.0)), 0.1).warnings[0]


@pytest.mark.parametrize(
    ("objectives", "limit"), [([None], 0.005), ([0.001], 0.002), ([1.0, 0.05], 0.005), ([9], 0.02)]
)
def test_how_late_a_generator_may_be_goes_by_the_objective(
    objectives: Sequence[float | None], limit: float
) -> None:
    assert lag_limit(objectives) == pytest.approx(limit)


def test_a_judge_gives_up_when_more_have_missed_than_may_in_the_whole_window() -> None:
    schedule = draw_arrivals({"a": 100.0, "b": 100.0}, 12.0, 1, constant)
    judge = judge_of(schedule, [0.1, None], warm_up_seconds=2.0)
    assert judge.allowed == (10, 1000)
    recording = answered(schedule)
    later = schedule.times >= 2.0
    first = np.flatnonzero(later & (schedule.model_index == 0))
    recording.status[~later] = 503  # the warm-up does not count
    recording.status[schedule.model_index == 1] = 500  # nor do misses of what nobody promised
    recording.status[first[:10]] = 503
    assert not judge(recording, 12.0)
    recording.status[first[10]] = 503
    assert judge(recording, 12.0)


def test_a_judge_counts_what_is_overdue() -> None:
    schedule = draw_arrivals({"a": 100.0}, 10.0, 1, constant)
    judge = judge_of(schedule, [0.5], warm_up_seconds=0.0)
    recording = Recording.empty(schedule)
    assert not judge(recording, 0.55)
    assert judge(recording, 0.65)


def test_a_run_that_was_given_up_is_missed_and_says_when() -> None:
    schedule = draw_arrivals({"a": 100.0}, 10.0, 1, constant)
    recording = replace(answered(schedule), stopped=3.0)
    recording.answered[50:] = NAN
    recording.status[50:] = NO_ANSWER
    result = run(recording, 0.1, warm_up=2.0)
    assert (result.verdict, result.stopped_after_seconds) == (Verdict.MISSED, 1.0)
    assert result.models["a"].failed == {"given up": 100}


def test_parts_of_a_recording_are_put_together_in_their_order() -> None:
    schedule = draw_arrivals({"a": 10.0}, 1.0, 1, constant)
    parts = [answered(schedule.part(number, 3), status=200 + number) for number in range(3)]
    parts[1].reasons[2] = "why"
    parts[2] = replace(parts[2], stopped=0.7)
    whole = merge(schedule, parts)
    assert whole.status.tolist() == [200, 201, 202] * 3 + [200]
    np.testing.assert_array_equal(whole.sent, schedule.times)
    assert (whole.reasons, whole.stopped) == ({7: "why"}, 0.7)
