"""Give carefully, take back at once, and say why."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.schedule.control.drive import STEP, Driver, counted

from treadle.schedule.control import Action, Controller, KnobError, Knobs, Observation
from treadle.schedule.control.levels import settings_at
from treadle.types import Priority

USUAL = settings_at(0.5, 0.01)


def test_without_an_objective_the_knobs_are_as_usual_and_the_minimum_duty_is_kept() -> None:
    driver = Driver(minimum_duty_fraction=0.05)
    for _ in range(100):
        decision = driver.step(counted(driver.now, 10, 10), objective=None)
    assert decision.settings == {**USUAL, "duty_fraction": 0.05}
    assert "no objective" in decision.reason
    assert "5%" in decision.reason


def test_an_objective_met_with_room_gives_background_work_more() -> None:
    driver = Driver()
    decision = driver.run(60)
    assert decision.level == 1.0
    assert decision.settings["budget_seconds"] > USUAL["budget_seconds"]
    assert decision.settings["duty_fraction"] > USUAL["duty_fraction"]
    assert "no more to give" in decision.reason


def test_giving_takes_some_hundred_requests_a_step() -> None:
    driver = Driver()
    driver.run(10, count=1)  # 200 requests
    assert driver.level == 0.5
    driver.run(5, count=1)
    assert driver.level == pytest.approx(0.55)


def test_a_missed_objective_takes_back_half_at_once() -> None:
    driver = Driver()
    driver.run(60)
    driver.run(0.7, late_every=15)
    change = next(one for one in driver.decisions[-14:] if one.changed)
    assert change.action is Action.BACK_OFF
    assert change.level == 0.5
    assert "server-0" in change.reason
    assert "over 10 ms" in change.reason


def test_an_objective_missed_by_far_takes_back_everything_at_once() -> None:
    driver = Driver()
    driver.run(60)
    driver.run(0.5, late_every=2)
    assert driver.level == 0.0


def test_what_was_in_line_at_a_change_is_not_held_against_the_new_settings() -> None:
    driver = Driver()
    driver.run(60)
    before = len(driver.decisions)
    driver.run(2 * STEP, count=100, late_every=8)  # the second comes within the settling time
    assert sum(bool(one.changed) for one in driver.decisions[before:]) == 1


def test_few_requests_are_not_a_p99() -> None:
    driver = Driver()
    driver.step(counted(driver.now + STEP, 20, 1))
    assert driver.level == 0.5  # one of twenty late is no surprise at one in a hundred
    driver.step(counted(driver.now + STEP, 20, 3))
    assert driver.level < 0.5


def test_nearly_missed_takes_back_a_little() -> None:
    driver = Driver()
    driver.run(3, late_every=120)
    backed = [one for one in driver.decisions if one.changed]
    assert {one.action for one in backed} == {Action.BACK_OFF}
    assert backed[0].level == pytest.approx(0.45)


def test_met_without_room_holds() -> None:
    driver = Driver()
    driver.run(60, near_every=50)
    assert not any(one.changed for one in driver.decisions)


def test_a_level_that_failed_is_not_tried_again_for_a_while() -> None:
    """The objective bears every level up to 0.7: five rounds of that do not oscillate."""
    driver, failures = Driver(), []
    for _ in range(5):
        for _ in range(600):  # 30 s
            bears = driver.level <= 0.7
            driver.step(counted(driver.now + STEP, 20, 0 if bears else 3))
            if driver.controller.last.action is Action.BACK_OFF:
                failures.append(driver.now - 100)
    assert len(failures) <= 3
    assert max(b - a for a, b in itertools.pairwise(failures)) > 60
    assert 0.6 < driver.level <= 0.7
    assert "was too much" in driver.controller.last.reason


def test_new_neighbours_make_what_was_learned_doubtful() -> None:
    driver = Driver()
    driver.run(60)
    driver.run(STEP, neighbours=("training", "batch"))
    assert driver.level == 0.5


def test_nothing_is_given_while_nobody_is_there_to_take_it() -> None:
    driver = Driver()
    driver.run(60, neighbours=())
    assert driver.level == 0.5
    assert "nobody to give to" in driver.controller.last.reason


def test_the_most_urgent_need_of_several_tasks_counts() -> None:
    driver = Driver()
    for _ in range(20):
        at = driver.now + STEP
        driver.step(counted(at, 50), counted(at, 50, 5))
    assert driver.level < 0.5
    assert any("server-1" in one.reason for one in driver.decisions if one.changed)


def test_the_quantum_is_turned_for_equals_with_an_objective_only() -> None:
    for priority, least in ((Priority.NORMAL, 2e-3), (Priority.CRITICAL, 10e-3)):
        driver = Driver()
        for _ in range(20):
            driver.step(counted(driver.now + STEP, 50, 25), priority=priority)
        assert driver.controller.last.settings["quantum_seconds"] == pytest.approx(least)


def test_background_tasks_do_not_steer() -> None:
    driver = Driver()
    driver.step(counted(driver.now + STEP, 50, 25), priority=Priority.BACKGROUND)
    assert "no objective" in driver.controller.last.reason


def test_misses_are_counted_with_who_was_there() -> None:
    driver = Driver()
    driver.run(1, neighbours=("batch",))
    driver.run(1, late_every=100, neighbours=("training", "batch"))
    driver.run(1, neighbours=("batch",))
    misses = driver.controller.report().tasks[0].misses
    assert (misses.requests, misses.over) == (600, 2)
    assert misses.beside == {"training": 2, "batch": 2}
    assert misses.per_thousand == pytest.approx(2 / 0.6)


def test_a_rolling_window_is_counted_once() -> None:
    driver = Driver()
    for _ in range(100):  # 5 s of windows of 1 s
        driver.step(counted(driver.now + STEP, 200, 1, window=1.0))
    assert driver.controller.report().tasks[0].misses.requests == 1000


def test_windows_longer_than_the_memory_of_late_requests_still_count() -> None:
    driver = Driver()
    for minute in range(1, 4):
        for _ in range(1200):
            driver.step(counted(100.0 + 60 * minute, 5000, 500, window=60.0))
    assert driver.level == 0.0


def test_a_window_that_makes_no_sense_is_not_counted() -> None:
    driver = Driver()
    for at, count, length in ((1e9, 10, 1.0), (float("nan"), 10, 1.0), (100.0, 10, -1.0)):
        driver.step(counted(at, count, count, window=length))
    driver.step(counted(100.0, -10, 5))
    assert driver.controller.report().tasks[0].misses.requests == 0
    assert driver.level == 0.5


def test_the_same_observations_give_the_same_decisions() -> None:
    def run() -> list[object]:
        driver, chance = Driver(), random.Random(5)
        for _ in range(2000):
            count = chance.randrange(30)
            driver.step(counted(driver.now + STEP, count, chance.randrange(count // 10 + 1)))
        return list(driver.decisions)

    assert run() == run()


def test_every_setting_stays_in_range_whatever_is_observed() -> None:
    chance, knobs = random.Random(6), Knobs()
    driver = Driver(knobs=knobs)
    for _ in range(3000):
        count = chance.randrange(300)
        over = chance.randrange(count + 1) if chance.random() < 0.2 else 0
        window = counted(driver.now + STEP, count, over) if chance.random() < 0.9 else None
        decision = driver.step(window, neighbours=chance.choice([None, (), ("a",), ("a", "b")]))
        assert decision.reason
        assert 0.0 <= decision.level <= 1.0
        for name, value in decision.settings.items():
            assert knobs[name].least <= value <= knobs[name].most


@pytest.mark.parametrize("duty", [-0.1, 0.6, float("nan")])
def test_a_minimum_duty_out_of_range_is_refused(duty: float) -> None:
    knobs = Knobs()
    with pytest.raises(KnobError, match=r"0 to 0\.5"):
        Controller("GPU-0", knobs, minimum_duty_fraction=duty)
    assert len(knobs) == 0


def test_time_that_goes_back_changes_nothing() -> None:
    driver = Driver()
    driver.run(10)
    before = driver.controller.last
    settings = driver.controller.step(Observation(), driver.now - 50)
    assert driver.controller.last.at == before.at
    assert set(settings) == set(before.settings)


def test_a_server_with_few_requests_is_given_for_too_if_slowly() -> None:
    driver = Driver()
    for step in range(20 * 400):
        driver.step(counted(driver.now + STEP, 1 if step % 20 == 0 else 0))  # one a second
    assert driver.level == pytest.approx(0.55)
    for step in range(20 * 200):
        driver.step(counted(driver.now + STEP, 1 if step % 20 == 0 else 0, int(step % 400 == 0)))
    assert driver.level <= 0.5
