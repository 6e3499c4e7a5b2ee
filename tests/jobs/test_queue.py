"""The jobs that wait."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treadle.programs.queue import Waiting
from treadle.programs.spec import Job
from treadle.schedule.place import Need
from treadle.types import TaskState

from .made import NEED, OTHER, job


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def ready(waiting: Waiting, most: int = 100) -> dict[Need, list[int]]:
    return {kind.need: [*kind.jobs] for kind in waiting.kinds(most)}


def test_jobs_that_need_the_same_are_one_kind_with_the_oldest_first(waiting: Waiting) -> None:
    for number, need in ((2, NEED), (1, NEED), (4, OTHER), (3, NEED)):
        waiting.add(job(number), need)
    assert ready(waiting) == {NEED: [1, 2, 3], OTHER: [4]}
    assert ready(waiting, most=2) == {NEED: [1, 2], OTHER: [4]}
    assert len(waiting) == 4
    assert 4 in waiting
    assert 5 not in waiting


def test_a_job_that_is_taken_is_gone(waiting: Waiting) -> None:
    one = job(1)
    waiting.add(one, NEED)
    assert waiting.take(1) is one
    assert ready(waiting) == {}
    assert 1 not in waiting


def test_a_held_job_is_not_ready_until_it_goes_on_where_it_was(waiting: Waiting) -> None:
    jobs = [job(number) for number in (1, 2, 3)]
    for one in jobs:
        waiting.add(one, NEED)
    jobs[1].held = True
    waiting.look_again(jobs[1])
    assert ready(waiting) == {NEED: [1, 3]}
    assert waiting.why(jobs[1]) == "held"
    jobs[1].held = False
    waiting.look_again(jobs[1])
    waiting.look_again(jobs[1])
    assert ready(waiting) == {NEED: [1, 2, 3]}


def test_a_held_job_can_leave_after_the_last_that_needs_the_same(waiting: Waiting) -> None:
    waiting.add(job(1, held=True), NEED)
    waiting.add(job(2), NEED)
    waiting.take(2)
    assert waiting.take(1).id == 1
    assert len(waiting) == 0


def test_a_job_waits_for_all_that_it_comes_after(waiting: Waiting) -> None:
    late = job(3)
    waiting.add(late, NEED, [1, 2])
    assert ready(waiting) == {}
    assert waiting.why(late) == "waits for job 1, 2"
    assert waiting.ended(2, TaskState.FINISHED) == []
    assert waiting.why(late) == "waits for job 1"
    assert waiting.ended(1, TaskState.FINISHED) == []
    assert ready(waiting) == {NEED: [3]}


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST])
def test_who_waits_for_one_that_fails_is_told(waiting: Waiting, state: TaskState) -> None:
    waiting.add(job(5), NEED, [1])
    waiting.add(job(4), NEED, [1])
    assert waiting.ended(1, state) == [4, 5]
    assert waiting.ended(1, state) == []


def test_who_has_left_is_not_told(waiting: Waiting) -> None:
    waiting.add(job(3), NEED, [1, 2])
    waiting.take(3)
    assert waiting.ended(1, TaskState.FAILED) == []


def test_a_job_may_wait_for_one_that_waits(waiting: Waiting) -> None:
    waiting.add(job(1), NEED)
    waiting.add(job(2), NEED, [1])
    waiting.add(job(3), NEED, [2])
    waiting.take(1)
    waiting.ended(1, TaskState.FINISHED)
    assert ready(waiting) == {NEED: [2]}


def test_the_reason_is_that_of_its_kind(waiting: Waiting) -> None:
    small, large = job(1), job(2, reason="attempt 1 failed")
    waiting.add(small, NEED)
    waiting.add(large, OTHER)
    numbers = {kind.need: kind.number for kind in waiting.kinds(1)}
    waiting.explain({numbers[NEED]: "no room"})
    assert waiting.why(small) == "no room"
    assert waiting.why(large) == "attempt 1 failed"
    waiting.explain({})
    assert waiting.why(small) == ""


def test_kinds_never_share_a_number(waiting: Waiting) -> None:
    waiting.add(job(1), NEED)
    waiting.add(job(2), OTHER)
    waiting.kinds(1)
    waiting.take(1)
    third = Need(OTHER.priority, 5, 1.0, 0)
    waiting.add(job(3), third)
    assert len({kind.number for kind in waiting.kinds(1)}) == 2


class Model(RuleBasedStateMachine):
    """The queue beside one that is easily seen to be right."""

    @initialize()
    def begin(self) -> None:
        self.waiting = Waiting()
        self.jobs: dict[int, Job] = {}
        self.missing: dict[int, set[int]] = {}
        self.number = 0

    @rule(need=st.sampled_from([NEED, OTHER]), held=st.booleans(), data=st.data())
    def add(self, need: Need, held: bool, data: st.DataObject) -> None:
        self.number += 1
        one = job(self.number, held=held, reason=repr(need))
        after = data.draw(st.sets(st.sampled_from([*self.jobs]))) if self.jobs else set()
        self.jobs[one.id], self.missing[one.id] = one, set(after)
        self.waiting.add(one, need, after)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        one = self.jobs[data.draw(st.sampled_from([*self.jobs]))]
        one.held = not one.held
        self.waiting.look_again(one)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), finished=st.booleans())
    def end(self, data: st.DataObject, finished: bool) -> None:
        number = data.draw(st.sampled_from([*self.jobs]))
        self.waiting.take(number)
        del self.jobs[number], self.missing[number]
        state = TaskState.FINISHED if finished else TaskState.FAILED
        doomed = sorted(n for n, missing in self.missing.items() if number in missing)
        assert self.waiting.ended(number, state) == ([] if finished else doomed)
        for other in doomed:
            self.missing[other].discard(number)
            if not finished:
                self.waiting.take(other)
                del self.jobs[other], self.missing[other]
                for last in self.waiting.ended(other, TaskState.FINISHED):
                    raise AssertionError(last)
                for missing in self.missing.values():
                    missing.discard(other)

    @invariant()
    def the_same_are_ready(self) -> None:
        expected: dict[str, list[int]] = {}
        for number, one in self.jobs.items():
            if not one.held and not self.missing[number]:
                expected.setdefault(one.reason, []).append(number)
        found = {repr(kind.need): [*kind.jobs] for kind in self.waiting.kinds(1000)}
        assert found == expected
        assert len(self.waiting) == len(self.jobs)


TestModel = Model.TestCase


def test_how_long_the_oldest_has_waited_counts_from_when_it_could_have_started() -> None:
    now = 100.0
    waiting = Waiting(lambda: now)

    def waited() -> list[float]:
        return [kind.waited_seconds for kind in waiting.kinds(1)]

    waiting.add(job(1), NEED)
    now += 10
    waiting.add(job(2), NEED, [9])
    assert waited() == [10]
    held = waiting.take(1)
    now += 10
    waiting.ended(9, TaskState.FINISHED)
    assert waited() == [0]
    now += 10
    waiting.add(held, NEED)
    assert waited() == [0]
    now += 10
    held.held = True
    waiting.look_again(held)
    assert waited() == [20]
